from pathlib import Path

import pytest

from cli.doctor import model
from cli.doctor.finding import Finding, Verdict
from shared.cpu import Cpu
from shared.model_manifest import IMPORTER_VERSION, MANIFEST_FILE, FileDigest, Manifest, Precision, Quality
from shared.model_registry import resolve
from shared.precision_rule import recommend
from shared.settings import Settings
from tests import fake_model

AVX2 = Cpu("x86_64", "", frozenset({"avx2"}))
VNNI = Cpu("x86_64", "", frozenset({"avx2", "avx_vnni"}))
ARM = Cpu("aarch64", "", frozenset({"asimddp"}))
GB = 10**9


@pytest.mark.parametrize(
    ("cpu", "slots", "precision", "words"),
    [
        (VNNI, 1, "int4", "2.0x as fast as int8 with VNNI"),
        (VNNI, 3, "int4", "less exact"),
        (VNNI, 4, "int8", "1.0x as fast as int4"),
        (VNNI, 40, "int8", "2.5x as fast as int4 with VNNI"),
        (AVX2, 2, "int4", "on AVX2"),
        (AVX2, 3, "int8", "1.3x"),
        (AVX2, 32, "int8", "1.7x as fast as int4 on AVX2"),
        (ARM, 32, "int8", "measured on x86, not on aarch64"),
    ],
)
def test_the_rule_follows_the_measurements(cpu: Cpu, slots: int, precision: str, words: str) -> None:
    advice = recommend(cpu, slots)
    assert advice.precision == precision
    assert words in advice.reason


def manifest(precision: Precision, bits: int, *, forced: bool = False) -> Manifest:
    quality = Quality(perplexity=20, perplexity_fp32=10, text_sha256="0" * 64, max_loss=0.03, forced=forced)
    return Manifest.model_validate(
        {
            "name": fake_model.NAME,
            "version": "1",
            "files": {"model.onnx": FileDigest(sha256="0" * 64, bytes=7 * GB)},
            "source": {"kind": "genai", "uri": "x", "sha256": "0" * 64},
            "architecture": "llama",
            "parameters": 7 * GB,
            "precision": precision,
            "weight_bits": bits,
            "context_length": 4096,
            "layers": 1,
            "kv_heads": 1,
            "head_size": 1,
            "vocab_size": 128,
            "kv_bytes_per_token": 1000,
            "quality": quality,
            "cpu": {"architecture": "x86_64", "features": (), "weight_range": 127},
            "created_at": "2026-01-01T00:00:00Z",
            "onnxruntime_version": "1",
            "importer_version": IMPORTER_VERSION,
        }
    )


def test_memory_decides_before_speed() -> None:
    assert recommend(VNNI, 32, manifest("int8", 8), 8 * GB).precision == "int8"
    tight = recommend(VNNI, 32, manifest("int8", 8), 5 * GB)
    assert (tight.precision, tight.reason) == (
        "int4",
        "int8 weights take 7,000 MB and a worker has 5,000 MB for them",
    )
    assert recommend(VNNI, 32, manifest("int8", 8), 1 * GB).precision == "int8"  # neither fits: memory has its own line


def examine(tmp_path: Path, found: Manifest, cpu: Cpu, slots: int = 32) -> dict[str, Finding]:
    fake_model.install(tmp_path)
    (tmp_path / fake_model.NAME / "1" / MANIFEST_FILE).write_text(found.model_dump_json())
    assert resolve(fake_model.NAME, tmp_path).manifest == found
    settings = Settings(model_dir=tmp_path, model=fake_model.NAME, max_num_seqs=slots)
    return {finding.name: finding for finding in model.findings(settings, cpu, 16 * GB)}


def test_doctor_explains_what_suits(tmp_path: Path) -> None:
    found = examine(tmp_path, manifest("int8", 8), VNNI)
    assert found["precision"].verdict is Verdict.OK
    assert found["precision"].detail.startswith("int8, as advised: 32 slots share a step")
    assert {"weights", "quality"}.isdisjoint(found)


def test_doctor_warns_of_another_precision(tmp_path: Path) -> None:
    found = examine(tmp_path, manifest("int4", 4), AVX2)
    assert found["precision"].verdict is Verdict.WARN
    assert "int4 is active, int8 is advised" in found["precision"].detail
    assert "--precision int8" in found["precision"].detail


def test_doctor_tells_when_a_newer_importer_would_be_more_exact(tmp_path: Path) -> None:
    old = manifest("int8", 7).model_copy(update={"importer_version": IMPORTER_VERSION - 1})
    found = examine(tmp_path / "old", old, AVX2)
    assert found["weights"].verdict is Verdict.WARN
    assert "`tokenmill models import` or `pull` again" in found["weights"].detail
    floats = old.model_copy(update={"precision": "fp32"})
    assert "weights" not in examine(tmp_path / "floats", floats, AVX2)


def test_doctor_tells_of_a_forced_import_and_of_a_missing_model(tmp_path: Path) -> None:
    found = examine(tmp_path / "a", manifest("int8", 7, forced=True), AVX2)
    assert "more than 3%" in found["quality"].detail
    absent = {f.name: f for f in model.findings(Settings(model_dir=tmp_path / "b", model="none"), AVX2, GB)}
    assert absent["model"].verdict is Verdict.WARN
    assert absent["precision"].detail.startswith("int8 is advised")
