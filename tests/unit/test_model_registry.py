from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shared import model_registry
from shared.errors import ModelCorruptError, ModelNotFoundError, ModelUnsupportedError, StateConflictError
from shared.model_manifest import CpuTarget, Manifest, Source
from shared.model_registry import ModelVersion, activate, digest_file, list_versions, resolve, rollback, verify

START = datetime(2026, 1, 1, tzinfo=UTC)


def install(model_dir: Path, name: str, version: str, age: int = 0) -> Path:
    path = model_dir / name / version
    path.mkdir(parents=True)
    (path / "model.onnx").write_bytes(b"weights")
    manifest = Manifest(
        name=name,
        version=version,
        files={"model.onnx": digest_file(path / "model.onnx")},
        source=Source(kind="gguf", uri="file", sha256="0" * 64),
        architecture="llama",
        parameters=1,
        precision="fp32",
        weight_bits=32,
        context_length=8,
        layers=1,
        kv_heads=1,
        head_size=8,
        vocab_size=8,
        kv_bytes_per_token=64,
        quality=None,
        cpu=CpuTarget(architecture="x86_64", features=(), weight_range=127),
        created_at=START - timedelta(days=age),
        onnxruntime_version="1",
        importer_version=1,
    )
    (path / "manifest.json").write_text(manifest.model_dump_json())
    return path


def test_versions_are_listed_by_name_then_age(tmp_path: Path) -> None:
    install(tmp_path, "b", "v1")
    install(tmp_path, "a", "new")
    install(tmp_path, "a", "old", age=3)
    (tmp_path / "a" / ".importing-x").mkdir()
    (tmp_path / "a" / ".importing-x" / "manifest.json").write_text("half written")
    assert [(v.name, v.version) for v in list_versions(tmp_path)] == [("a", "old"), ("a", "new"), ("b", "v1")]


def test_an_absent_model_dir_holds_nothing(tmp_path: Path) -> None:
    assert list_versions(tmp_path / "absent") == []


def test_a_name_resolves_to_its_active_version(tmp_path: Path) -> None:
    install(tmp_path, "a", "v1")
    install(tmp_path, "a", "v2")
    activate("a", "v2", tmp_path)
    assert resolve("a", tmp_path).version == "v2"
    assert [path.name for path in (tmp_path / "a").glob(".active-*")] == []


def test_a_path_resolves_to_the_version_in_it(tmp_path: Path) -> None:
    path = install(tmp_path, "a", "v1")
    assert resolve(path, tmp_path).version == resolve(str(path), tmp_path).version == "v1"


def test_rollback_swaps_the_two_latest_activations(tmp_path: Path) -> None:
    for version in ("v1", "v2", "v3"):
        install(tmp_path, "a", version)
        activate("a", version, tmp_path)
    assert rollback("a", tmp_path).version == "v2"
    assert rollback("a", tmp_path).version == "v3"


def test_activating_the_active_version_keeps_the_rollback_target(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        install(tmp_path, "a", version)
        activate("a", version, tmp_path)
    activate("a", "v2", tmp_path)
    assert rollback("a", tmp_path).version == "v1"


def test_rollback_without_an_earlier_version_is_a_conflict(tmp_path: Path) -> None:
    install(tmp_path, "a", "v1")
    activate("a", "v1", tmp_path)
    with pytest.raises(StateConflictError):
        rollback("a", tmp_path)


def test_unknown_names_and_versions_say_what_is_installed(tmp_path: Path) -> None:
    install(tmp_path, "a", "v1")
    with pytest.raises(ModelNotFoundError, match="installed: a"):
        resolve("b", tmp_path)
    with pytest.raises(ModelNotFoundError, match="installed: v1"):
        activate("a", "v9", tmp_path)


@pytest.mark.parametrize("name", ["", "..", "A", "a b", ".hidden", "a\n", "x" * 65])
def test_names_cannot_leave_the_model_dir(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="lower-case"):
        resolve(name, tmp_path)


def test_clients_cannot_name_a_path(tmp_path: Path) -> None:
    path = install(tmp_path, "a", "v1")
    with pytest.raises(ModelNotFoundError):
        model_registry.resolve_name(str(path), tmp_path)


def test_verify_names_the_file_that_differs_or_is_missing(tmp_path: Path) -> None:
    version = ModelVersion.load(install(tmp_path, "a", "v1"))
    verify(version)
    (version.path / "model.onnx").write_bytes(b"weightz")
    with pytest.raises(ModelCorruptError, match=r"model\.onnx differs"):
        verify(version)
    (version.path / "model.onnx").unlink()
    with pytest.raises(ModelCorruptError, match=r"model\.onnx is missing"):
        verify(version)


def test_a_directory_without_or_with_a_broken_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupportedError, match="models import"):
        ModelVersion.load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema_version": 99}')
    with pytest.raises(ModelCorruptError, match="schema_version"):
        ModelVersion.load(tmp_path)


def test_a_manifest_cannot_list_files_outside_its_directory(tmp_path: Path) -> None:
    path = install(tmp_path, "a", "v1")
    text = (path / "manifest.json").read_text().replace('"model.onnx"', '"../../secret"')
    (path / "manifest.json").write_text(text)
    with pytest.raises(ModelCorruptError, match="files"):
        ModelVersion.load(path)
