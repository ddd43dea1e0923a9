import json
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, numpy_helper

from shared.cpu import Cpu
from shared.errors import ModelNotFoundError, ModelUnsupportedError
from shared.model_manifest import Precision
from shared.model_registry import ModelVersion, active_version, list_versions, verify
from tests.unit.modelstore.tiny_model import TinyModel
from workers.modelstore.__main__ import main
from workers.modelstore.genai_import import GenaiDirectory
from workers.modelstore.graph import save
from workers.modelstore.store import ImportRequest, ModelStore

AVX2 = Cpu("x86_64", "test", frozenset({"avx2"}))
VNNI = Cpu("x86_64", "test", frozenset({"avx2", "avx_vnni"}))


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel.random("llama").write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", general__license="mit")


def add(
    model_dir: Path, path: Path, precision: Precision | None = None, cpu: Cpu = AVX2
) -> tuple[ModelVersion, list[str]]:
    reports: list[str] = []
    version = ModelStore(model_dir, cpu, reports.append).add(ImportRequest(path, "tiny", precision))
    return version, reports


def test_an_import_is_complete_verified_and_active(tmp_path: Path, tiny_gguf: Path) -> None:
    version, _ = add(tmp_path, tiny_gguf)
    verify(version)
    manifest = version.manifest
    assert version.path == tmp_path / "tiny" / version.version
    assert manifest.version.startswith("int8-")
    assert (manifest.precision, manifest.weight_bits) == ("int8", 8)
    assert manifest.quantisation == ("rotation", "smoothing", "error feedback")
    assert (manifest.source.kind, manifest.source.licence, manifest.architecture) == ("gguf", "mit", "llama")
    assert manifest.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert manifest.quality is not None
    assert manifest.quality.perplexity == pytest.approx(manifest.quality.perplexity_fp32, rel=0.05)
    assert active_version("tiny", tmp_path) == version.version
    assert [path.name for path in (tmp_path / "tiny").iterdir() if path.name.startswith(".")] == []


def test_the_same_import_again_builds_nothing(tmp_path: Path, tiny_gguf: Path) -> None:
    first, _ = add(tmp_path, tiny_gguf)
    again, reports = add(tmp_path, tiny_gguf)
    assert (again.version, reports) == (first.version, [])


def test_a_damaged_version_is_built_anew(tmp_path: Path, tiny_gguf: Path) -> None:
    first, _ = add(tmp_path, tiny_gguf, "fp32")
    (first.path / "model.onnx.data").write_bytes(b"damaged")
    again, reports = add(tmp_path, tiny_gguf, "fp32")
    verify(again)
    assert again.version == first.version
    assert "building it anew" in reports[0]


def test_versions_differ_by_precision_and_are_the_same_for_every_processor(tmp_path: Path, tiny_gguf: Path) -> None:
    imports: list[tuple[Precision, Cpu]] = [("fp32", AVX2), ("int8", AVX2), ("int8", VNNI), ("int4", AVX2)]
    versions = [add(tmp_path, tiny_gguf, precision, cpu)[0] for precision, cpu in imports]
    assert [v.manifest.weight_bits for v in versions] == [32, 8, 8, 4]
    assert len({v.version for v in list_versions(tmp_path)}) == 3
    assert active_version("tiny", tmp_path) == versions[0].version


def test_a_float_directory_quantises_like_the_file_it_came_from(tmp_path: Path, tiny_gguf: Path) -> None:
    floats, _ = add(tmp_path / "a", tiny_gguf, "fp32")
    direct, _ = add(tmp_path / "b", tiny_gguf, "int8")
    converted, _ = add(tmp_path / "c", floats.path)
    assert converted.manifest.precision == "int8"
    assert converted.manifest.files["model.onnx.data"] == direct.manifest.files["model.onnx.data"]
    assert converted.manifest.source.kind == "genai"


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_quantised_directory_is_taken_as_it_is(tmp_path: Path, tiny_gguf: Path, precision: Precision) -> None:
    quantised, _ = add(tmp_path / "a", tiny_gguf, precision)
    taken, _ = add(tmp_path / "b", quantised.path)
    assert taken.version == quantised.version
    assert taken.manifest.quality is not None
    assert taken.manifest.quality.perplexity_fp32 is None


def test_a_quantised_directory_cannot_become_another_precision(tmp_path: Path, tiny_gguf: Path) -> None:
    quantised, _ = add(tmp_path / "a", tiny_gguf, "int4")
    with pytest.raises(ModelUnsupportedError, match="is int4 already"):
        add(tmp_path / "b", quantised.path, "int8")
    assert list_versions(tmp_path / "b") == []


def with_one_weight(float_dir: Path, target: Path, value: float) -> Path:
    """Copy a float32 directory with one value of every matrix replaced."""
    shutil.copytree(float_dir, target)
    model = onnx.load(target / "model.onnx")
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2:
            values = numpy_helper.to_array(tensor).copy()
            values[0, 0] = value
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    save(model, target)
    return target


def test_weights_that_make_nan_are_refused(tmp_path: Path, tiny_gguf: Path) -> None:
    floats, _ = add(tmp_path / "a", tiny_gguf, "fp32")
    broken = with_one_weight(floats.path, tmp_path / "nan", float("nan"))
    with pytest.raises(ModelUnsupportedError, match="NaN"):
        add(tmp_path / "b", broken, "fp32")
    assert list_versions(tmp_path / "b") == []


def test_sources_that_are_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupportedError, match="does not exist"):
        add(tmp_path / "m", tmp_path / "absent")
    with pytest.raises(ModelUnsupportedError, match=r"genai_config\.json"):
        add(tmp_path / "m", tmp_path)


def test_an_unreadable_graph_is_refused(tmp_path: Path, tiny_gguf: Path) -> None:
    floats, _ = add(tmp_path / "a", tiny_gguf, "fp32")
    shutil.copytree(floats.path, tmp_path / "broken")
    (tmp_path / "broken" / "model.onnx").write_bytes(b"\xff" * 40)
    with pytest.raises(ModelUnsupportedError, match="not a readable ONNX"):
        add(tmp_path / "b", tmp_path / "broken")


def test_names_that_could_leave_the_directory_are_refused(tmp_path: Path, tiny_gguf: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        ModelStore(tmp_path, AVX2, print).add(ImportRequest(tiny_gguf, "../up"))


def test_parameters_are_counted_alike_from_file_and_directory(tmp_path: Path, tiny_gguf: Path) -> None:
    floats, _ = add(tmp_path, tiny_gguf, "fp32")
    counted = GenaiDirectory(floats.path).parameters
    assert counted == pytest.approx(floats.manifest.parameters, rel=0.01)


def run(capsys: pytest.CaptureFixture[str], model_dir: Path, *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments, "--model-dir", str(model_dir)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_commands_work_together(tmp_path: Path, tiny_gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for precision in ("fp32", "int8"):
        run(capsys, tmp_path, "import", str(tiny_gguf), "--name", "tiny", "--precision", precision)
    code, out, err = run(capsys, tmp_path, "list", "--json")
    first, second = json.loads(out)
    assert (code, err) == (0, "")
    assert (first["active"], second["active"], second["precision"]) == (True, False, "int8")
    assert run(capsys, tmp_path, "activate", "tiny", second["version"])[0] == 0
    assert second["version"] in run(capsys, tmp_path, "inspect", "tiny")[1]
    assert run(capsys, tmp_path, "rollback", "tiny", "--json")[1].count(first["version"]) >= 1
    assert run(capsys, tmp_path, "verify")[0] == 0


def test_errors_go_to_stderr_with_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, tmp_path, "inspect", "absent")
    assert (code, out) == (1, "")
    assert err.startswith("error: model 'absent' is not installed")
