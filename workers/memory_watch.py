"""Keeps a worker within its memory: caches go first, then the worker itself, in good order, before the kernel acts."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import psutil
import structlog

from workers.engine.serving import Serving

log = structlog.get_logger(__name__)

CHECK_SECONDS = 1.0
RELIEF_SECONDS = 5.0
_ROLLUP = Path("/proc/self/smaps_rollup")
_PSS = re.compile(rb"^Pss:\s+(\d+) kB$", re.MULTILINE)


@runtime_checkable
class Trims(Protocol):
    """An engine that can empty its caches."""

    def trim(self) -> None:
        """Forget what is only kept to be faster."""
        ...


def proportional_bytes(rollup: Path = _ROLLUP) -> int | None:
    """Return this process's memory, shared pages divided by who shares them; None where the kernel does not tell."""
    try:
        found = _PSS.search(rollup.read_bytes())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def own_bytes(limit: int) -> int:
    """Return the memory this process is to blame for; shared weights are looked into only beyond `limit`."""
    resident = int(psutil.Process().memory_info().rss)
    if resident <= limit:
        return resident
    return proportional_bytes() or resident


class MemoryWatch:
    """Compares memory with `limit`, in bytes. One thread calls `exceeded`."""

    def __init__(
        self,
        engine: Serving,
        limit: int,
        measure: Callable[[int], int] = own_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch this process and the engine's child."""
        self.limit = limit
        self._engine, self._measure, self._clock = engine, measure, clock
        self._next_check = 0.0
        self._trimmed_at: float | None = None

    def exceeded(self) -> bool:
        """Return whether the worker has to go: it is over the limit though its caches were emptied."""
        now = self._clock()
        if now < self._next_check:
            return False
        self._next_check = now + CHECK_SECONDS
        used = self._measure(self.limit) + self._engine.stats().genai_bytes
        if used <= self.limit:
            self._trimmed_at = None
            return False
        return self._over(used, now)

    def _over(self, used: int, now: float) -> bool:
        figures = {"bytes": used, "limit": self.limit}
        if self._trimmed_at is None:
            self._trimmed_at = now
            if isinstance(self._engine, Trims):
                self._engine.trim()
            log.warning("over the memory limit: caches are dropped", **figures)
            return False
        if now - self._trimmed_at < RELIEF_SECONDS:
            return False
        log.error("over the memory limit: the worker hands its jobs back and starts anew", **figures)
        return True
