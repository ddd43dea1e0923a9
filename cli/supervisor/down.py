"""`tokenmill down`: works with a live supervisor, a dead one, and none."""

import shutil
from pathlib import Path
from signal import SIGKILL, SIGTERM

from cli.embedded.placement import noted_home
from cli.supervisor.leftovers import end_children, stop_servers
from cli.supervisor.lock import holder
from shared.errors import InvalidInputError

MARGIN_SECONDS = 60.0
MARKERS = ("supervisor.lock", "ports.json", "encryption.key")  # whatever `up` got round to writing
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


def purge(state_dir: Path) -> None:
    """Delete a stopped fleet's state: keys, logs, and the data of its embedded servers wherever they lie.

    Raises:
        InvalidInputError: `state_dir` is not a state directory; nothing was deleted.
    """
    if not any((state_dir / name).is_file() for name in MARKERS):
        raise InvalidInputError(f"{state_dir} is no state directory: nothing was deleted", field="--state-dir")
    home = noted_home(state_dir / "postgres")
    if home is not None:
        shutil.rmtree(home, ignore_errors=True)
    shutil.rmtree(state_dir)
