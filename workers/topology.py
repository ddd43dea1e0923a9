"""Core sets: which cores a worker may use, and keeping every thread of it on them.

Standard library only: a process pins itself before it imports anything that starts threads.
"""

import os
from pathlib import Path

from shared.errors import ConfigurationError

MAX_CORE = 4095
_THREADS = Path("/proc/self/task")


def parse_cores(text: str) -> tuple[int, ...]:
    """Return the sorted cores in a list such as `0`, `0-3` or `0,2-3`.

    Raises:
        ConfigurationError: it is no such list.
    """
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigurationError(f"cores must read like 0, 0-3 or 0,2-3, not {text!r}", field="cores")
        cores.update(range(int(first), min(int(last or first), MAX_CORE) + 1))
    if not cores:
        raise ConfigurationError(f"cores {text!r} names no core: write the lower one first", field="cores")
    return tuple(sorted(cores))


def allowed_cores() -> tuple[int, ...]:
    """Return the cores this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def pin(cores: tuple[int, ...]) -> None:
    """Keep every thread of this process, and those it will start, on `cores`.

    Raises:
        ConfigurationError: the process may not run on one of them.
    """
    refused = sorted(set(cores) - set(allowed_cores()))
    if refused:
        allowed = ",".join(map(str, allowed_cores()))
        raise ConfigurationError(
            f"core {refused[0]} is not available to this process; choose from {allowed}", field="cores"
        )
    # An affinity belongs to a thread; new threads inherit the one of their creator.
    for thread in _THREADS.iterdir():
        os.sched_setaffinity(int(thread.name), cores)
