"""The republisher: has messages written anew that the broker lost."""

from collections.abc import Mapping
from datetime import timedelta

import redis
import structlog

from shared import recovery
from shared.celery_app import SOCKET_TIMEOUT_SECONDS, redis_keys_of
from shared.database import Database
from shared.outbox import queue_for

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 1.0


def open_broker(url: str) -> "redis.Redis":
    """Return a client with timeouts: a broker that hangs must not hang us."""
    return redis.Redis.from_url(
        url, socket_timeout=SOCKET_TIMEOUT_SECONDS, socket_connect_timeout=SOCKET_TIMEOUT_SECONDS
    )


class Republisher:
    """Compares the jobs that wait with the messages in the broker, and makes up the difference.

    Messages a worker has taken but not acknowledged are left out on purpose: those of a killed worker stay there for
    hours and would hide as many lost ones. A message too many is harmless, and there are never more messages than
    waiting jobs, because only the difference is written.
    """

    def __init__(self, database: Database, broker: "redis.Redis", older_than: timedelta) -> None:
        """Republish what was published before `older_than` ago."""
        self._database = database
        self._broker = broker
        self._older_than = older_than

    def run(self) -> bool:
        """Write one portion of outbox rows; True when it was full, so more may be missing."""
        with self._database.transaction() as session:
            waiting = recovery.published_per_model(session)
        missing = self._missing(waiting)
        if not missing:
            return False
        with self._database.transaction() as session:
            count = recovery.republish(session, missing, self._older_than) if recovery.try_lock(session) else 0
        if count:
            log.warning("messages lost by the broker are published anew", count=count)
        return count >= recovery.BATCH

    def _missing(self, waiting: Mapping[str, int]) -> dict[str, int]:
        short = {model: count - self._depth(model) for model, count in waiting.items()}
        return {model: count for model, count in short.items() if count > 0}

    def _depth(self, model: str) -> int:
        return sum(self._broker.llen(key) for key in redis_keys_of(queue_for(model)))
