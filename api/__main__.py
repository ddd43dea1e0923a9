"""`python -m api`: serve the API until SIGTERM or SIGINT."""

import socket
import sys

import structlog
import uvicorn
from fastapi import FastAPI

from api.app import create_app
from shared import parent_watch, structured_logging
from shared.errors import ConfigurationError
from shared.process import harden
from shared.settings import Settings, get_settings

DRAIN_SECONDS = 5
_log = structlog.get_logger(__name__)


class Server(uvicorn.Server):
    """Says where it listens, and lets long polls go when it is told to stop."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        """Serve `app` where `settings` say; port 0 takes a free one."""
        # No access log: it would hold query strings. Forwarded addresses are trusted from nobody.
        config = uvicorn.Config(
            app,
            host=settings.api_host,
            port=settings.api_port,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        super().__init__(config)
        self._app = app
        self._supervisor_pid = settings.supervisor_pid

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, then log address and port."""
        await super().startup(sockets)
        parent_watch.end_with_parent(self._supervisor_pid)
        for listener in (listener for server in self.servers for listener in server.sockets):
            host, port = listener.getsockname()[:2]
            _log.info("api_listening", host=host, port=port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer those who wait for a job with its state as it is, then stop."""
        self._app.state.services.waiter.release()
        await super().shutdown(sockets)


def main() -> int:
    """Run the server; return the exit code."""
    harden()
    settings = get_settings()
    structured_logging.configure("api", level=settings.log_level)
    try:
        app = create_app(settings)
    except ConfigurationError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    Server(app, settings).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
