"""Which cores each worker gets."""

import os
from pathlib import Path

from shared.settings import Settings

_TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores(topology: Path = _TOPOLOGY) -> list[int]:
    """Return one hardware thread per physical core this process may use, neighbours (NUMA nodes) together.

    Two threads of a core share its multipliers: a second worker there takes from the first.
    """
    allowed = sorted(os.sched_getaffinity(0))
    first_of: dict[str, int] = {}
    for core in allowed:
        first_of.setdefault(_physical(core, topology), core)
    return sorted(first_of.values(), key=lambda core: (_node(core, topology), core))


def _physical(core: int, topology: Path) -> str:
    siblings = topology / f"cpu{core}" / "topology" / "thread_siblings_list"
    return siblings.read_text(encoding="ascii").strip() if siblings.exists() else str(core)


def _node(core: int, topology: Path) -> int:
    nodes = list((topology / f"cpu{core}").glob("node[0-9]*"))
    return int(nodes[0].name.removeprefix("node")) if nodes else 0


def core_sets(settings: Settings) -> list[tuple[int, ...]]:
    """Return one core set per worker: as many as fit by default; more than that share cores."""
    cores = usable_cores()
    width = min(settings.threads_per_worker, len(cores))
    count = settings.workers or len(cores) // width
    sets = len(cores) // width
    return [tuple(sorted(cores[(n % sets) * width : (n % sets + 1) * width])) for n in range(count)]


def written(cores: tuple[int, ...]) -> str:
    """Write a core set as `--cores` reads it."""
    return ",".join(map(str, cores))
