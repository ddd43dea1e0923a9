"""CPU time of the processes of a fleet, by role, and what the busiest thread of a worker did all the while."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

NANOSECONDS = 1e9


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of `pid` and its descendants, those that have ended included."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(_own(process) for process in tree)


def _own(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def by_role(processes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return CPU seconds by role. The supervisor's own: its descendants have roles of their own."""
    seconds: dict[str, float] = {}
    for process in processes:
        if process["role"] != "supervisor":
            seconds[process["role"]] = seconds.get(process["role"], 0.0) + cpu_seconds(process["pid"])
    return seconds


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Seconds a thread ran, and seconds it could have run but another had the core. Source: /proc, schedstat."""

    ran_s: float
    waited_s: float

    def __sub__(self, earlier: "ThreadTimes") -> "ThreadTimes":
        """Return what came since `earlier`."""
        return ThreadTimes(self.ran_s - earlier.ran_s, self.waited_s - earlier.waited_s)


def thread_times(pid: int) -> dict[int, ThreadTimes]:
    """Return the times of every thread of `pid`."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        ran, waited, _ = (task / "schedstat").read_text(encoding="ascii").split()
        found[int(task.name)] = ThreadTimes(int(ran) / NANOSECONDS, int(waited) / NANOSECONDS)
    return found


def engine_and_others(before: Mapping[int, ThreadTimes], after: Mapping[int, ThreadTimes]) -> tuple[ThreadTimes, float]:
    """Return the times of the thread that ran most, which is the engine's, and the CPU seconds of all others."""
    nothing = ThreadTimes(0.0, 0.0)
    spent = sorted((times - before.get(thread, nothing) for thread, times in after.items()), key=lambda t: t.ran_s)
    return spent[-1], sum(times.ran_s for times in spent[:-1])
