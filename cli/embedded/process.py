"""Processes by identity, not by number: a pid that was given to another process is never adopted or signalled."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.embedded.account import Account

POLL_SECONDS = 0.02
_STATE_FIELD = 0
_THREADS_FIELD = 17
_START_TICKS_FIELD = 19
_ENDED = frozenset("ZX")


def _stat_fields(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat after the command name, which itself may hold spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def birth_of(pid: int) -> str | None:
    """Return boot id and start time (clock ticks) of a process; None when it has ended."""
    try:
        fields = _stat_fields(pid)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return None if _ended(fields) else f"{boot}:{fields[_START_TICKS_FIELD]}"


def _ended(fields: Sequence[str]) -> bool:
    """A zombie whose other threads are still on their way out may yet hold its files and ports."""
    return fields[_STATE_FIELD] in _ENDED and int(fields[_THREADS_FIELD]) <= 1


def arguments_of(pid: int) -> list[str]:
    """Return the command line of a process; empty when it has ended."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0")[:-1]]


def processes_in(directory: Path) -> list[int]:
    """Return pids whose current directory is `directory` (those this user may look at)."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _stands_in(entry, directory)]


def _stands_in(entry: Path, directory: Path) -> bool:
    try:
        return (entry / "cwd").readlink() == directory and birth_of(int(entry.name)) is not None
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until `condition` holds; False when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


@dataclass(frozen=True)
class ProcessIdentity:
    """One process for good: its pid and when it was born."""

    pid: int
    birth: str

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """Identify the process that has `pid` now; None when there is none."""
        birth = birth_of(pid)
        return None if birth is None else cls(pid, birth)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return birth_of(self.pid) == self.birth

    def send(self, number: signal.Signals) -> None:
        """Signal the process; nothing happens when it has ended."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def stop(self, steps: Sequence[tuple[signal.Signals, float]]) -> bool:
        """Send each signal and wait its seconds; True when the process ended on its way."""
        for number, seconds in steps:
            self.send(number)
            if wait_until(lambda: not self.alive, seconds):
                return True
        return not self.alive


def launch(
    arguments: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    account: Account | None = None,
    directory: Path = Path("/"),
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own (a terminal's Ctrl-C is ours to handle), writing to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=directory,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
