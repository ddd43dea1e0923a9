"""The application: routes, middleware, and what the process opens and closes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import structlog
from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI
from redis import Redis

from api import errors, generate, health, jobs, openapi, scrub, workers
from api.auth import Authenticator, require
from api.body_limit import BodyLimit
from api.completion_waiter import CompletionWaiter
from api.dependencies import Services
from api.health import Readiness
from api.middleware import RequestContext
from api.publisher import Publisher
from api.submission import Submissions
from shared import celery_app, workers_repository
from shared.crypto import KeyRing
from shared.database import Database, database_url
from shared.errors import ConfigurationError
from shared.privacy import Scrubber
from shared.settings import Settings

POOL_SIZE = 10
# As many requests at work as connections (the pool doubles under load): nobody waits for a connection.
THREADS = 2 * POOL_SIZE
BROKER_TIMEOUT_SECONDS = 2.0
HEARTBEATS_MISSED = 3
DESCRIPTION = "Batch generation on CPUs: submit jobs, poll or wait for results."
_log = structlog.get_logger(__name__)


def _database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise ConfigurationError(
            "set TOKENMILL_DATABASE_URL, or start the fleet with `tokenmill up`", field="database_url"
        )
    return settings.database_url.get_secret_value()


def _keyring(settings: Settings) -> KeyRing:
    return KeyRing.from_setting(settings.encryption_key.get_secret_value() if settings.encryption_key else None)


def _open_services(settings: Settings) -> Services:
    # Nothing connects before it is used: the API starts although a server is away.
    database = Database(_database_url(settings), pool_size=POOL_SIZE, application_name="tokenmill-api")
    keyring = _keyring(settings)
    celery = celery_app.create_celery(settings)
    publisher = Publisher(database, partial(celery_app.publish, celery))
    broker = Redis.from_url(
        celery_app.broker_url(settings),
        socket_timeout=BROKER_TIMEOUT_SECONDS,
        socket_connect_timeout=BROKER_TIMEOUT_SECONDS,
    )
    submissions = Submissions(settings, database, keyring, publisher)
    return Services(
        settings=settings,
        database=database,
        keyring=keyring,
        broker=broker,
        celery=celery,
        authenticator=Authenticator(database, keyring),
        publisher=publisher,
        submissions=submissions,
        waiter=CompletionWaiter(database),
        readiness=_readiness(settings, database, broker, submissions),
        scrubber=Scrubber.configured(settings),
    )


def _readiness(settings: Settings, database: Database, broker: Redis, submissions: Submissions) -> Readiness:
    def broker_answers() -> None:
        broker.ping()

    def worker_lives() -> str | None:
        model = submissions.budget.resolve(None).name
        with database.transaction() as session:
            alive = workers_repository.live(session, HEARTBEATS_MISSED * settings.heartbeat, model=model)
        return None if alive else f"no worker serves {model}: start one with `tokenmill worker`"

    checks: dict[str, Callable[[], str | None]] = {
        "database": database.ping,
        "broker": broker_answers,
        "worker": worker_lives,
    }
    return Readiness(checks)


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = app.state.services = _open_services(settings)
        current_default_thread_limiter().total_tokens = THREADS
        services.publisher.start()
        warming = asyncio.create_task(asyncio.to_thread(_warm, services))
        try:
            yield
        finally:
            services.waiter.release()
            await warming
            await asyncio.to_thread(services.close)

    return lifespan


def _warm(services: Services) -> None:
    try:
        services.submissions.budget.warm()
    except Exception:  # noqa: BLE001  # the model may come later; the first submission says what is missing
        _log.warning("model_not_ready", model=services.settings.model, exc_info=True)


def create_app(settings: Settings) -> FastAPI:
    """Build the application. It opens its connections when it starts and closes them when it stops.

    Raises:
        ConfigurationError: a setting is missing or cannot work.
    """
    database_url(_database_url(settings)), _keyring(settings), celery_app.broker_url(settings)
    # The built-in pages load scripts from elsewhere, and the built-in document needs no key: both are off.
    app = FastAPI(
        title="Tokenmill",
        version=version("tokenmill"),
        description=DESCRIPTION,
        lifespan=_lifespan(settings),
        openapi_url=None,
    )
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes)
    app.add_middleware(RequestContext)
    errors.install(app)
    for module in (jobs, generate, scrub, workers, health):
        app.include_router(module.router)

    @app.get("/openapi.json", include_in_schema=False, dependencies=[Depends(require())])
    def openapi_document() -> dict[str, Any]:
        return openapi.document(app)

    return app
