"""Memory this process may still take: the machine's, and what its control groups (containers) leave of it."""

from collections.abc import Iterator
from pathlib import Path

import psutil

MIB = 1 << 20
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
# Version 2 keeps one hierarchy; version 1 one for memory, with other file names.
_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available_bytes(root: Path = _CGROUPS, own: Path = _OWN_GROUPS) -> int:
    """Return the bytes that can be taken without swapping or being killed."""
    return min([psutil.virtual_memory().available, *(free for _, free in _limits(root, own))])


def total_bytes(root: Path = _CGROUPS, own: Path = _OWN_GROUPS) -> int:
    """Return the memory of the machine, or of the tightest container around this process."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _limits(root, own))])


def _limits(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and free bytes of every limited control group around this process."""
    for folder, names in _groups(root, own):
        limit, used = _number(folder / names[0]), _number(folder / names[1])
        if limit is not None and used is not None:
            yield limit, max(0, limit - used + _reclaimable(folder / "memory.stat", names[2]))


def _groups(root: Path, own: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    if not own.is_file():
        return
    for line in own.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in _FILES:
            continue
        top = root / controllers
        # Inside a container the path may be that of the host; then only the top is visible.
        below = (top / path.strip("/")).resolve()
        for folder in (below, *below.parents):
            yield folder, _FILES[controllers]
            if folder == top:
                break


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max": no limit


def _reclaimable(path: Path, name: str) -> int:
    """Return the file cache the kernel gives up before it kills anybody; it counts as used."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
