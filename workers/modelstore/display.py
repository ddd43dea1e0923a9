"""Model versions as tables for people and as JSON for scripts."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared.model_manifest import Manifest, Quality
from shared.model_registry import ModelVersion, active_version
from workers.engine.kv_cache import KvShape

_SLOTS, _CONTEXTS = (1, 16, 32), (512, 2048, 8192)
_MEGABYTE = 1e6


def as_json(version: ModelVersion, model_dir: Path) -> dict[str, object]:
    """Return the manifest with `path` and `active` added."""
    active = active_version(version.name, model_dir) == version.version
    return {**version.manifest.model_dump(mode="json"), "path": str(version.path), "active": active}


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=bool(column), overflow="fold")
    return table


def _megabytes(count: float) -> str:
    return f"{count / _MEGABYTE:,.0f} MB"


def _loss(quality: Quality | None) -> str:
    if quality is None or quality.perplexity_fp32 is None:
        return "-"
    forced = " (forced)" if quality.forced else ""
    return f"{quality.perplexity / quality.perplexity_fp32 - 1:+.1%}{forced}"


def show_table(versions: Sequence[ModelVersion], model_dir: Path) -> None:
    """Print one line per version; the active one is marked."""
    table = _table("model", "version", "active", "size", "context", "ppl", "loss")
    for version in versions:
        manifest = version.manifest
        active = "yes" if active_version(version.name, model_dir) == version.version else ""
        perplexity = f"{manifest.quality.perplexity:.2f}" if manifest.quality else "-"
        size, context = _megabytes(manifest.total_bytes), str(manifest.context_length)
        table.add_row(version.name, version.version, active, size, context, perplexity, _loss(manifest.quality))
    Console().print(table)


def _int8_kv(manifest: Manifest) -> int:
    return KvShape(manifest.layers, manifest.kv_heads, manifest.head_size).bytes_per_token("int8")


def _facts(version: ModelVersion) -> dict[str, str]:
    manifest, quality = version.manifest, version.manifest.quality
    agreement = quality.argmax_agreement if quality else None
    return {
        "model": f"{version.name} {version.version}",
        "path": str(version.path),
        "source": f"{manifest.source.uri} ({manifest.source.kind}, {manifest.source.licence})",
        "architecture": f"{manifest.architecture}, {manifest.layers} layers",
        "parameters": f"{manifest.parameters / 1e6:.1f} million",
        "precision": ", ".join([manifest.precision, f"{manifest.weight_bits} bit", *manifest.quantisation]),
        "made for": f"{manifest.cpu.architecture} {' '.join(manifest.cpu.features)}",
        "perplexity": f"{quality.perplexity:.3f} ({_loss(quality)} to float32)" if quality else "not measured",
        "kept in float32": ", ".join(manifest.kept_float) or "no linear layer",
        "largest activation": f"{quality.largest_activation:,.0f}"
        if quality and quality.largest_activation
        else "not measured",
        "same next token": f"{agreement:.1%} of positions" if agreement is not None else "not measured",
        "context": f"{manifest.context_length} tokens",
        "size": _megabytes(manifest.total_bytes),
        "KV per token": f"{_int8_kv(manifest):,} bytes in int8, {manifest.kv_bytes_per_token:,} in float32",
    }


def show_details(version: ModelVersion) -> None:
    """Print what is known about a version, and the memory it takes per slots and context."""
    table = _table("what", "")
    table.show_header = False
    for label, value in _facts(version).items():
        table.add_row(label, value)
    console, manifest = Console(), version.manifest
    console.print(table)
    contexts = [tokens for tokens in _CONTEXTS if tokens <= manifest.context_length] or [manifest.context_length]
    memory = _table("memory, weights + int8 KV", *(f"{tokens} tokens" for tokens in contexts))
    for slots in _SLOTS:
        sizes = [manifest.total_bytes + slots * tokens * _int8_kv(manifest) for tokens in contexts]
        memory.add_row(f"{slots} slots", *map(_megabytes, sizes))
    console.print()
    console.print(memory)
