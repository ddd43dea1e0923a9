"""End with the supervisor: a process of the fleet whose parent is gone drains for a moment, then ends.

Each process calls `end_with_parent(settings.supervisor_pid)` once its own signal handlers stand. Orphans would hold
ports and leases that the next `tokenmill up` needs.
"""

import os
import signal
import threading
import time

POLL_SECONDS = 0.5
GRACE_SECONDS = 7.0


def end_with_parent(supervisor_pid: int | None) -> threading.Thread | None:
    """Watch the parent from a daemon thread; nothing to do (None) when no supervisor started this process.

    When the parent is gone this process gets SIGTERM, and SIGKILL 7 s later: together under 10 s.
    """
    if supervisor_pid is None:
        return None
    thread = threading.Thread(target=_watch, args=(supervisor_pid,), name="parent-watch", daemon=True)
    thread.start()
    return thread


def _watch(supervisor_pid: int) -> None:
    while os.getppid() == supervisor_pid:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
