"""An embedded server under supervision: started again after a pause when it dies."""

import time

import structlog

from cli.embedded.server import EmbeddedServer
from cli.supervisor.backoff import Backoff
from cli.supervisor.fleet_file import FleetProcess
from shared.errors import ServerStartError

log = structlog.get_logger()


class SupervisedServer:
    """Watches one embedded server. `start` is the server's own and may raise; `tick` never does."""

    def __init__(self, server: EmbeddedServer) -> None:
        """Take the server; the caller starts it first."""
        self.server = server
        self.restarts = 0
        self._backoff = Backoff()
        self._started_at = time.monotonic()
        self._start_at: float | None = None

    @property
    def name(self) -> str:
        """Name of its log."""
        return self.server.role

    def start(self) -> None:
        """Adopt or start it, and wait until it answers."""
        adopted = self.server.start()
        self._started_at = time.monotonic()
        log.info("server adopted" if adopted else "server started", process=self.server.role, port=self.server.port)

    def tick(self) -> None:
        """Notice a crash, or start the server again when it is time."""
        if self.server.alive():
            return
        now = time.monotonic()
        if self._start_at is None:
            self._start_at = now + self._backoff.after_run_of(now - self._started_at)
            log.warning("server ended", process=self.server.role, retry_in=self._start_at - now)
        elif now >= self._start_at:
            self._start_again()

    def _start_again(self) -> None:
        self.restarts += 1
        self._start_at = None
        try:
            self.server.stop()
            self.start()
        except (ServerStartError, OSError) as error:
            log.error("server did not start", process=self.server.role, error_type=type(error).__name__)  # noqa: TRY400  # the traceback says no more

    def entry(self) -> FleetProcess | None:
        """Return its line in fleet.json; None while it does not run."""
        found = self.server.find()
        if found is None:
            return None
        return FleetProcess(self.server.role, found.pid, found.birth)
