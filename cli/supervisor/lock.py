"""One supervisor per state directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.embedded.process import ProcessIdentity
from shared.errors import StateConflictError


def _path(state_dir: Path) -> Path:
    return state_dir / "supervisor.lock"


@contextmanager
def supervisor_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock of `state_dir`; the kernel frees it however the process ends. Children do not inherit it.

    Raises:
        StateConflictError: another supervisor holds it; names its pid.
    """
    descriptor = os.open(_path(state_dir), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise already_running(state_dir, file.read().strip()) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def already_running(state_dir: Path, pid: object) -> StateConflictError:
    """Return the error for a second supervisor."""
    return StateConflictError(
        f"a supervisor (pid {pid}) already runs in {state_dir}; see `tokenmill status`, or stop it: `tokenmill down`"
    )


def holder(state_dir: Path) -> ProcessIdentity | None:
    """Return the supervisor of `state_dir`; None when none runs. A held lock proves that the pid in it is current."""
    if not _path(state_dir).exists():
        return None
    with _path(state_dir).open(encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return ProcessIdentity.of(int(file.read().strip() or 0))
    return None
