"""Ends what an earlier supervisor left behind: only processes that are provably ours."""

from collections.abc import Iterable
from pathlib import Path
from signal import SIGKILL, SIGTERM

from cli.embedded.postgres import PostgresServer
from cli.embedded.process import wait_until
from cli.embedded.server import EmbeddedServer
from cli.embedded.valkey import ValkeyServer
from cli.supervisor import fleet_file
from cli.supervisor.fleet_file import SERVER_ROLES, SUPERVISOR_ROLE, FleetProcess
from shared.errors import ServerStartError

GRACE_SECONDS = 12.0
KILL_SECONDS = 5.0


def _children(state_dir: Path) -> list[FleetProcess]:
    fleet = fleet_file.read(state_dir)
    if fleet is None:
        return []
    return [process for process in fleet.alive() if process.role not in SERVER_ROLES | {SUPERVISOR_ROLE}]


def end_children(state_dir: Path) -> list[FleetProcess]:
    """Stop API, workers and the like whose supervisor is gone; return those that were found."""
    found = _children(state_dir)
    for process in found:
        process.identity.send(SIGTERM)
    wait_until(lambda: not _alive(found), GRACE_SECONDS)
    for process in _alive(found):
        process.identity.stop([(SIGKILL, KILL_SECONDS)])
    return found


def _alive(processes: Iterable[FleetProcess]) -> list[FleetProcess]:
    return [process for process in processes if process.identity.alive]


def stop_servers(state_dir: Path) -> list[str]:
    """Stop the embedded servers of `state_dir`; return the roles that ran.

    Raises:
        ServerStartError: one does not end.
    """
    servers: list[EmbeddedServer] = [PostgresServer(state_dir), ValkeyServer(state_dir)]
    running = [server for server in servers if server.directory.exists() and server.alive()]
    stuck = [server.role for server in running if not server.stop()]
    if stuck:
        raise ServerStartError(f"{', '.join(stuck)} of {state_dir} did not end; end it by hand")
    return [server.role for server in running]
