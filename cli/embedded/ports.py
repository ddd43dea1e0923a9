"""Ports of the fleet: the configured one, or a free one that is kept in the state directory."""

import json
import secrets
import socket
from pathlib import Path

import psutil

from cli.embedded.files import write_private
from shared.errors import ServerStartError

LOOPBACK = "127.0.0.1"
FIRST_PORT = 20_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def listener_of(port: int) -> str:
    """Say who listens on `port`, as far as this user may know."""
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[1] == port:
            return _name(connection.pid)
    return "another process"


def _name(pid: int | None) -> str:
    if pid is None:
        return "another user's process"
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"


class PortBook:
    """Which role has which port, kept in `<state_dir>/ports.json`."""

    def __init__(self, state_dir: Path) -> None:
        """Read what earlier runs kept."""
        self._path = state_dir / "ports.json"

    def kept(self) -> dict[str, int]:
        """Return the ports kept so far, by role."""
        return dict(json.loads(self._path.read_text(encoding="utf-8"))) if self._path.exists() else {}

    def port_of(self, role: str, configured: int = 0) -> int:
        """Return the port `role` is to have: configured, kept, or a free one, which is kept from now on."""
        kept = self.kept()
        port = configured or kept.get(role) or _free_port(taken=set(kept.values()))
        if kept.get(role) != port:
            write_private(self._path, json.dumps(kept | {role: port}, indent=1) + "\n")
        return port

    def claim(self, role: str, configured: int = 0, host: str = LOOPBACK) -> int:
        """Return the port of `role`, which nobody listens on.

        Raises:
            ServerStartError: somebody does; names the port, the setting and, if known, who.
        """
        port = self.port_of(role, configured)
        if not is_free(port, host):
            setting = f"TOKENMILL_{role.upper()}_PORT"
            raise ServerStartError(
                f"port {port} for {role} is taken by {listener_of(port)}; stop that process or set {setting}",
                field=setting,
            )
        return port


def _free_port(taken: set[int]) -> int:
    """A free port below the ephemeral range: no outgoing connection can take it while the fleet is down."""
    for _ in range(_ATTEMPTS):
        port = FIRST_PORT + secrets.randbelow(max(1, _lowest_ephemeral() - FIRST_PORT))
        if port not in taken and is_free(port):
            return port
    raise ServerStartError("no free port found; set TOKENMILL_API_PORT, TOKENMILL_REDIS_PORT, TOKENMILL_POSTGRES_PORT")


def _lowest_ephemeral() -> int:
    if not _EPHEMERAL.exists():
        return 32_768
    return int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
