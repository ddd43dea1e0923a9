"""The model served: is it there, in the precision that suits this machine, and made by this importer?"""

from collections.abc import Iterator

from cli.doctor.finding import Finding, Verdict
from shared.cpu import Cpu
from shared.errors import TokenmillError
from shared.model_manifest import IMPORTER_VERSION, Manifest
from shared.model_registry import resolve
from shared.precision_rule import recommend
from shared.settings import Settings
from shared.worker_memory import WorkerMemory


def findings(settings: Settings, cpu: Cpu, room: int) -> Iterator[Finding]:
    """Look at the active version; a worker has `room` bytes for everything."""
    try:
        found = resolve(settings.model, settings.model_dir)
    except TokenmillError as error:
        yield Finding("model", error.message, Verdict.WARN)
        yield _precision(settings, cpu, None, room)
        return
    yield Finding("model", f"{found.name}@{found.version} in {found.path}")
    yield _precision(settings, cpu, found.manifest, room)
    yield from _importer(found.manifest)
    yield from _quality(found.manifest)


def _precision(settings: Settings, cpu: Cpu, manifest: Manifest | None, room: int) -> Finding:
    if manifest is None:
        advice = recommend(cpu, settings.max_num_seqs)
        return Finding("precision", f"{advice.precision} is advised: {advice.reason}")
    advice = recommend(cpu, settings.max_num_seqs, manifest, room - WorkerMemory.planned(manifest, settings).kv)
    if manifest.precision == advice.precision:
        return Finding("precision", f"{advice.precision}, as advised: {advice.reason}")
    return Finding(
        "precision",
        f"{manifest.precision} is active, {advice.precision} is advised: {advice.reason};"
        f" `tokenmill models import` or `pull` with --precision {advice.precision}, then `models activate`",
        Verdict.WARN,
    )


def _importer(manifest: Manifest) -> Iterator[Finding]:
    if manifest.precision == "int8" and manifest.importer_version < IMPORTER_VERSION:
        yield Finding(
            "weights",
            "imported by an older Tokenmill, whose weights are less exact; `tokenmill models import` or `pull` again",
            Verdict.WARN,
        )


def _quality(manifest: Manifest) -> Iterator[Finding]:
    quality = manifest.quality
    if quality is not None and quality.forced:
        allowed = f"{quality.max_loss:.0%}" if quality.max_loss is not None else "any"
        yield Finding("quality", f"imported with --force: perplexity rose by more than {allowed}", Verdict.WARN)
