"""The fast path: publish a job right after its transaction, without ever holding up the answer to the client.

One thread publishes what was offered. While the broker is away it drops offers, and the relay publishes those jobs.
"""

import queue
import threading
import time

import structlog

from shared import outbox
from shared.database import Database

CAPACITY = 10_000
BATCH = 200
PAUSE_SECONDS = 5.0
STOP_SECONDS = 2.0
_log = structlog.get_logger(__name__)


class Publisher:
    """Publishes offered jobs through the outbox, in the order of offers."""

    def __init__(self, database: Database, publish: outbox.Publish) -> None:
        """Use `publish` to hand one message to the broker; it may block or raise."""
        self._database = database
        self._publish = publish
        self._offers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._resume_at = 0.0
        # A daemon: a broker that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, job_id: str) -> None:
        """Hand over a committed job. Never blocks; what does not fit is left to the relay."""
        if time.monotonic() >= self._resume_at and self._offers.qsize() < CAPACITY:
            self._offers.put(job_id)

    def stop(self) -> None:
        """Publish what was offered and end, within two seconds."""
        self._offers.put(None)
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while True:
            offered = self._take()
            job_ids = [job_id for job_id in offered if job_id is not None]
            if job_ids and time.monotonic() >= self._resume_at:
                self._relay(job_ids)
            if len(job_ids) < len(offered):
                return

    def _take(self) -> list[str | None]:
        offered = [self._offers.get()]
        while len(offered) < BATCH and not self._offers.empty():
            offered.append(self._offers.get_nowait())
        return offered

    def _relay(self, job_ids: list[str]) -> None:
        try:
            with self._database.transaction() as session:
                outbox.relay(session, self._publish, job_ids=job_ids, limit=len(job_ids))
        except Exception:  # noqa: BLE001  # broker, socket or database: the thread lives on, the relay publishes later
            self._resume_at = time.monotonic() + PAUSE_SECONDS
            _log.warning("publish_failed", count=len(job_ids), retry_in=PAUSE_SECONDS, exc_info=True)
