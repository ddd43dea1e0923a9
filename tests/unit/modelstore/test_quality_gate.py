from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from shared.cpu import Cpu
from shared.errors import ModelUnsupportedError
from shared.model_manifest import Precision
from shared.model_registry import ModelVersion, list_versions
from tests.unit.modelstore.tiny_model import HEAD_SIZE, TinyModel
from workers.modelstore.gguf_import import convert_gguf
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.graph import save
from workers.modelstore.overflow_scan import Probes, check_weights
from workers.modelstore.quality import open_session, score
from workers.modelstore.quality_gate import QualityGate
from workers.modelstore.sensitivity import layer_errors, layers_to_keep
from workers.modelstore.store import ImportRequest, ModelStore

AVX2 = Cpu("x86_64", "test", frozenset({"avx2"}))
TEXT = "the cat and the dog, 12 of them"


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose second o_proj has weights a thousand times larger than the rest, with values as much smaller."""
    model = TinyModel.random("llama")
    model.weights["blk.1.attn_v.weight"][3] /= 1000
    for head in range(2):  # both read the key-value head whose channel 3 was shrunk
        model.weights["blk.1.attn_output.weight"][:, head * HEAD_SIZE + 3] *= 1000
    return model.write(tmp_path_factory.mktemp("sabotaged") / "tiny.gguf")


@pytest.fixture(scope="module")
def floats(sabotaged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("floats") / "fp32"
    convert_gguf(GgufFile(sabotaged), directory)
    return directory


def add(model_dir: Path, path: Path, precision: Precision = "int8", **options: Any) -> ModelVersion:  # noqa: ANN401  # the request's own fields
    return ModelStore(model_dir, AVX2, lambda _: None).add(ImportRequest(path, "tiny", precision, **options))


def test_the_layer_that_int8_ruins_stays_float32(tmp_path: Path, sabotaged: Path) -> None:
    version = add(tmp_path, sabotaged)
    manifest, quality = version.manifest, version.manifest.quality
    assert manifest.kept_float == ("layers.1.attn.o_proj",)
    assert quality is not None
    assert (quality.max_loss, quality.forced) == (0.03, False)
    assert quality.perplexity <= 1.03 * (quality.perplexity_fp32 or 0)
    assert [n.op_type for n in onnx.load(version.path / "model.onnx").graph.node].count("MatMul") == 1


def test_what_no_layer_can_save_is_refused_unless_forced(
    tmp_path: Path, sabotaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.modelstore.sensitivity.MOST_KEPT", 0.001)
    with pytest.raises(ModelUnsupportedError, match=r"rises by \d+\.\d%.*--max-loss.*--force"):
        add(tmp_path, sabotaged)
    assert list_versions(tmp_path) == []
    forced = add(tmp_path, sabotaged, force=True)
    assert forced.manifest.quality is not None
    assert forced.manifest.quality.forced
    assert forced.manifest.kept_float == ()
    with pytest.raises(ModelUnsupportedError, match="rises by"):  # it does not slip in behind the forced one
        add(tmp_path, sabotaged)
    allowed = add(tmp_path, sabotaged, max_loss_percent=100_000)
    assert allowed.version == forced.version


def test_int4_is_noted_but_refused_only_when_asked() -> None:
    assert QualityGate.of("int4", None, force=False).holds(200, 100)
    assert not QualityGate.of("int4", 25, force=False).holds(200, 100)
    assert QualityGate.of("int8", None, force=False).holds(102.9, 100)
    assert not QualityGate.of("int8", None, force=False).holds(103.1, 100)
    assert QualityGate.of("int8", None, force=False).holds(103.1, None)


def test_the_error_of_a_layer_points_at_the_ruined_one(floats: Path) -> None:
    errors = layer_errors(floats, TEXT, 127)
    assert len(errors) == 2 * 5 + 1
    ranked = sorted(errors, key=lambda name: -errors[name])
    assert ranked[0] == "layers.1.attn.o_proj"
    assert errors[ranked[0]] > 4 * errors[ranked[1]]


def test_kept_layers_grow_by_doubling_within_the_budget() -> None:
    sizes = {str(n): 10 for n in range(60)} | {"head": 1000}
    errors = {name: -float(name) if name != "head" else 1.0 for name in sizes}
    kept = list(layers_to_keep(errors, sizes))
    assert [len(names) for names in kept] == [1, 2, 4, 8, 16]
    assert kept[0] == {"0"}
    assert "head" not in kept[-1]  # the worst, but more than all that may stay


def test_the_scan_sees_what_layers_compute(floats: Path) -> None:
    expected = max(
        float(np.abs(values).max())
        for values in open_session(floats, ["layers.0.mlp.down_proj", "layers.1.attn.o_proj"]).run(
            [1, 17, 44], ["layers.0.mlp.down_proj", "layers.1.attn.o_proj", "logits"]
        )
    )
    assert score(floats, TEXT).largest_activation >= 0.5 * expected > 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_layer_that_overflows_is_named(bad: float) -> None:
    probes = Probes(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])))
    probes._layers = ["fine", "broken"]
    fine, broken = np.ones((1, 1), np.float32), np.full((1, 1), bad, np.float32)
    assert probes.largest([fine, fine * 7, fine, fine * 3]) == 7
    with pytest.raises(ModelUnsupportedError, match=r"^broken computes"):
        probes.largest([fine, fine, broken, fine])


def test_a_bad_weight_that_no_text_touches_is_found(floats: Path, tmp_path: Path) -> None:
    model = onnx.load(floats / "model.onnx")
    table = next(t for t in model.graph.initializer if t.name == "embed_tokens.weight")
    values = numpy_helper.to_array(table).copy()
    values[40, 5] = np.inf
    table.CopyFrom(numpy_helper.from_array(values, table.name))
    save(model, tmp_path)
    check_weights(floats / "model.onnx")
    with pytest.raises(ModelUnsupportedError, match=r"embed_tokens\.weight"):
        check_weights(tmp_path / "model.onnx")
