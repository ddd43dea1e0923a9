"""`tokenmill down`: works with a live supervisor, a dead one, and none."""

from pathlib import Path
from signal import SIGKILL, SIGTERM

from cli.supervisor.leftovers import end_children, stop_servers
from cli.supervisor.lock import holder

MARGIN_SECONDS = 60.0
KILL_SECONDS = 5.0


def stop_fleet(state_dir: Path, drain_seconds: float) -> bool:
    """Stop everything of `state_dir`: drained by its supervisor, else one by one. False when nothing ran.

    Raises:
        ServerStartError: a server does not end.
    """
    supervisor = holder(state_dir)
    if supervisor is not None:
        supervisor.stop([(SIGTERM, drain_seconds + MARGIN_SECONDS), (SIGKILL, KILL_SECONDS)])
    children, servers = end_children(state_dir), stop_servers(state_dir)
    return bool(supervisor or children or servers)
