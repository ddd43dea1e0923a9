"""Fills the manifest of a freshly built model directory."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shared.cpu import Cpu
from shared.model_manifest import (
    IMPORTER_VERSION,
    MANIFEST_FILE,
    CpuTarget,
    FileDigest,
    Manifest,
    Precision,
    Quality,
    Source,
)
from shared.model_registry import digest_file
from workers.engine.scoring import ONNXRUNTIME_VERSION
from workers.modelstore.genai_import import GenaiDirectory
from workers.modelstore.weight_pairs import WEIGHT_RANGE

_DIGEST_LENGTH = 12


def digest_files(paths: list[Path]) -> dict[str, FileDigest]:
    """Return the digest of every file by its name."""
    return {path.name: digest_file(path) for path in sorted(paths)}


def combined_sha256(files: dict[str, FileDigest]) -> str:
    """Return one digest for a set of files: that of their sorted `sha256  name` lines."""
    lines = "".join(f"{digest.sha256}  {name}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True)
class BuildFacts:
    """What the directory itself does not tell."""

    name: str
    source: Source
    parameters: int
    precision: Precision
    weight_bits: int
    quantisation: tuple[str, ...]
    kept_float: tuple[str, ...]
    quality: Quality
    cpu: Cpu


def write_manifest(directory: Path, facts: BuildFacts) -> Manifest:
    """Digest the files of `directory` and write `manifest.json` into it; the version names precision and content."""
    model = GenaiDirectory(directory)
    files, config, cpu = digest_files(model.files), model.config, facts.cpu
    manifest = Manifest(
        name=facts.name,
        version=f"{facts.precision}-{combined_sha256(files)[:_DIGEST_LENGTH]}",
        files=files,
        source=facts.source,
        architecture=model.architecture,
        parameters=facts.parameters,
        precision=facts.precision,
        weight_bits=facts.weight_bits,
        quantisation=facts.quantisation,
        kept_float=facts.kept_float,
        context_length=config.context_length,
        layers=config.kv_shape.layers,
        kv_heads=config.kv_shape.kv_heads,
        head_size=config.kv_shape.head_size,
        vocab_size=config.vocab_size,
        kv_bytes_per_token=config.kv_shape.bytes_per_token("float32"),
        quality=facts.quality,
        cpu=CpuTarget(architecture=cpu.architecture, features=cpu.features, weight_range=WEIGHT_RANGE),
        created_at=datetime.now(UTC),
        onnxruntime_version=ONNXRUNTIME_VERSION,
        importer_version=IMPORTER_VERSION,
    )
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
    return manifest
