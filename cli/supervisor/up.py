"""`tokenmill up`: everything in order, then the loop."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import structlog
from pydantic import SecretStr
from sqlalchemy.exc import DBAPIError

from cli.embedded.files import log_file, private_directory
from cli.embedded.ports import LOOPBACK, PortBook
from cli.embedded.postgres import PostgresServer
from cli.embedded.server import EmbeddedServer
from cli.embedded.valkey import ValkeyServer
from cli.supervisor import fleet_file, keys
from cli.supervisor.fleet_file import Fleet
from cli.supervisor.leftovers import end_children
from cli.supervisor.lock import supervisor_lock
from cli.supervisor.model_check import ensure_model
from cli.supervisor.process_spec import ProcessSpec
from cli.supervisor.roles import Addresses, child_environment, process_specs
from cli.supervisor.served import SupervisedServer
from cli.supervisor.stop_request import StopRequest
from cli.supervisor.supervisor import Supervisor
from shared import migrate, structured_logging
from shared.errors import ServerStartError
from shared.settings import Settings

log = structlog.get_logger()
Announce = Callable[[Fleet, str | None], None]
Specs = Callable[[Settings, Mapping[str, str]], Sequence[ProcessSpec]]
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  # compared with, not bound


def run(settings: Settings, announce: Announce, specs: Specs = process_specs) -> None:
    """Start the fleet of `settings.state_dir` and supervise it until SIGTERM or SIGINT.

    `announce` is called when servers and model are there and children are about to start, with the API key if it is
    new. `specs` says which children there are, given the effective settings and their environment.

    Raises:
        StateConflictError: a supervisor runs already.
        ServerStartError: a server or the model is not to be had; what was started is stopped again.
    """
    private_directory(settings.state_dir)
    with ExitStack() as stack:
        stack.enter_context(supervisor_lock(settings.state_dir))
        stream = stack.enter_context(log_file(settings.state_dir, "supervisor").open("a", encoding="utf-8"))
        structured_logging.configure("supervisor", level=settings.log_level, stream=stream)
        stop = StopRequest()
        stop.install()
        _start(settings, stop, announce, specs)


def _start(settings: Settings, stop: StopRequest, announce: Announce, specs: Specs) -> None:
    ended = end_children(settings.state_dir)
    log.info("supervisor started", pid=os.getpid(), count=len(ended))
    servers: list[SupervisedServer] = []
    stop.raising = True
    try:
        fleet, environment = _prepare(settings, servers, announce)
        stop.raising = False
    except BaseException as error:
        stop.raising = False
        for served in reversed(servers):
            served.server.stop()
        if isinstance(error, KeyboardInterrupt):
            return
        raise
    Supervisor(fleet, servers, specs(settings, environment), stop).run()


def _prepare(
    settings: Settings, servers: list[SupervisedServer], announce: Announce
) -> tuple[Fleet, Mapping[str, str]]:
    addresses = _addresses(settings, servers)
    _migrate(addresses.database_url)
    encryption_key = keys.encryption_key(settings)
    keys.flower_login(settings.state_dir)
    new_key = keys.ensure_api_key(addresses.database_url, encryption_key, settings.state_dir)
    environment = child_environment(settings, addresses, encryption_key)
    fleet = describe(settings, addresses, ensure_model(settings, environment))
    fleet_file.write(fleet)
    announce(fleet, new_key)
    return fleet, environment


def _addresses(settings: Settings, servers: list[SupervisedServer]) -> Addresses:
    """Start what no URL is given for; `servers` receives it, so that the caller can stop it whatever happens."""
    book, state_dir = PortBook(settings.state_dir), settings.state_dir
    return Addresses(
        redis_url=_url(settings.redis_url, ValkeyServer(state_dir, port=settings.redis_port), servers),
        database_url=_url(settings.database_url, PostgresServer(state_dir, port=settings.postgres_port), servers),
        api_port=book.claim("api", settings.api_port, settings.api_host),
        flower_port=book.claim("flower", settings.flower_port),
    )


def _url(configured: SecretStr | None, server: EmbeddedServer, servers: list[SupervisedServer]) -> str:
    if configured is not None:
        return configured.get_secret_value()
    served = SupervisedServer(server)
    servers.append(served)
    served.start()
    return server.url


def _migrate(database_url: str) -> None:
    try:
        migrate.upgrade(database_url)
    except DBAPIError as error:
        raise ServerStartError(
            f"the database does not answer or refuses the migrations ({type(error.orig).__name__}): "
            "check TOKENMILL_DATABASE_URL",
            field="TOKENMILL_DATABASE_URL",
        ) from error


def describe(settings: Settings, addresses: Addresses, model: str) -> Fleet:
    """Return the fleet as `status` shows it."""
    host = LOOPBACK if settings.api_host in ANY_ADDRESS else settings.api_host
    return Fleet(
        state_dir=str(settings.state_dir),
        api_url=f"http://{f'[{host}]' if ':' in host else host}:{addresses.api_port}",
        flower_url=f"http://{LOOPBACK}:{addresses.flower_port}",
        key_file=str(fleet_file.key_file(settings.state_dir)),
        model=model,
        database_url=addresses.database_url,
        redis_url=addresses.redis_url,
    )
