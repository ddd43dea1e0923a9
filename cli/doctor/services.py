"""PostgreSQL, Redis and the API, where there are any."""

from collections.abc import Iterator

import psycopg
import redis

from cli.doctor.finding import Finding, Verdict
from cli.supervisor import fleet_file
from cli.supervisor.readiness import is_ready
from shared.database import database_url
from shared.errors import TokenmillError
from shared.settings import Settings

OLDEST_POSTGRES = 14
TIMEOUT_SECONDS = 3


def findings(settings: Settings) -> Iterator[Finding]:
    """Ask the configured servers, else those of this machine's fleet."""
    fleet = fleet_file.read(settings.state_dir)
    database = settings.database_url.get_secret_value() if settings.database_url else fleet and fleet.database_url
    broker = settings.redis_url.get_secret_value() if settings.redis_url else fleet and fleet.redis_url
    if not database or not broker:
        yield Finding("services", "`tokenmill up` will start PostgreSQL and Valkey")
    if database:
        yield _postgres(database)
    if broker:
        yield from _redis(broker)
    if fleet is not None and fleet.supervisor is not None:
        yield Finding("api", fleet.api_url) if is_ready(fleet.api_url) else _away("api", "is not ready: see /ready")


def _away(name: str, why: str) -> Finding:
    return Finding(name, why, Verdict.FAIL)


def _postgres(url: str) -> Finding:
    try:
        plain = database_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, connect_timeout=TIMEOUT_SECONDS) as connection:
            version = connection.info.server_version // 10_000
    except (psycopg.Error, TokenmillError) as error:
        return _away("postgres", f"does not answer ({type(error).__name__}): check TOKENMILL_DATABASE_URL")
    if version < OLDEST_POSTGRES:
        return _away("postgres", f"version {version}: {OLDEST_POSTGRES} or newer is needed")
    return Finding("postgres", f"version {version}")


def _redis(url: str) -> Iterator[Finding]:
    try:
        with redis.Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, decode_responses=True) as client:
            information = client.info()
            policy = information.get("maxmemory_policy")
            durable = information.get("aof_enabled")
    except (redis.RedisError, ValueError) as error:
        yield _away("redis", f"does not answer ({type(error).__name__}): check TOKENMILL_REDIS_URL")
        return
    yield Finding("redis", f"version {information.get('valkey_version') or information.get('redis_version')}")
    fine = policy == "noeviction"
    advice = "" if fine else ": set it to noeviction, or wake-ups vanish when memory is short"
    yield Finding("redis maxmemory-policy", f"{policy}{advice}", Verdict.OK if fine else Verdict.FAIL)
    if not durable:
        yield Finding("redis appendonly", "off: after a restart wake-ups come from the outbox only", Verdict.WARN)
