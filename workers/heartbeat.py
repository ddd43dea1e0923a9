"""The heartbeat: renews the leases of all held jobs, notices cancellations, writes the worker's row.

It has a thread and a database connection of its own, so that a full connection pool never costs a lease.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared import leases, workers_repository
from shared.database import Database
from shared.errors import LeaseLostError, TokenmillError
from shared.models import JsonObject
from shared.settings import Settings
from workers.held_jobs import HeldJobs
from workers.identity import Identity

log = structlog.get_logger(__name__)

CANCEL_POLL_SECONDS = 0.5
LEASE_LOST = "another worker may hold the job now; this attempt's work is discarded"


class Interrupts(Protocol):
    """The part of the engine that ends generations early."""

    def cancel(self, request_id: str) -> bool:
        """End a generation whose client cancelled it."""
        ...

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End a generation with `error`."""
        ...


class Heartbeat:
    """Beats every `settings.heartbeat` from `start` to `stop`; `status` is what the worker's row says."""

    def __init__(  # noqa: PLR0913  # its parts, composed in `workers.app`
        self,
        *,
        database: Database,
        settings: Settings,
        identity: Identity,
        held: HeldJobs,
        engine: Interrupts,
        figures: Callable[[], JsonObject],
    ) -> None:
        """Compose; `database` is used by this thread only."""
        self.status = "starting"
        self._database = database
        self._lease = settings.lease
        self._interval = settings.heartbeat.total_seconds()
        self._identity = identity
        self._held = held
        self._engine = engine
        self._figures = figures
        self._next_beat = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread; the first beat follows at once."""
        self._thread.start()

    def set_status(self, status: str) -> None:
        """Change the status and have it written with the next tick."""
        self.status, self._next_beat = status, 0.0

    def stop(self, timeout: float) -> None:
        """Stop the thread and say `stopped`, if the database answers."""
        self._stopping.set()
        self._thread.join(timeout)
        self.status = "stopped"
        if not self._thread.is_alive():
            self._guarded(self.beat)
            self._database.close()

    def _loop(self) -> None:
        tick = min(CANCEL_POLL_SECONDS, self._interval / 2)
        while not self._stopping.wait(tick):
            self.tick()

    def tick(self) -> None:
        """Do what is due. A database that is away is asked again with the next tick."""
        if time.monotonic() >= self._next_beat:
            if self._guarded(self.beat):
                self._next_beat = time.monotonic() + self._interval
        elif self._held.fences():
            self._guarded(self.poll_cancellations)

    def _guarded(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except SQLAlchemyError as error:
            log.warning("heartbeat failed", error_type=type(error).__name__, count=len(self._held.fences()))
            return False
        return True

    def beat(self) -> None:
        """Renew all leases and write the worker's row in one transaction. Raises SQLAlchemyError."""
        fences, since = self._held.fences(), time.monotonic()
        row = self._identity.heartbeat(self.status, self._figures())
        with self._database.transaction() as session:
            renewal = leases.renew(session, fences, self._lease)
            workers_repository.beat(session, row)
        kept = {job_id: fence for job_id, fence in fences.items() if job_id not in renewal.lost}
        self._held.renewed(kept, since)
        for job_id in renewal.lost:
            self._lost(job_id)
        for job_id in renewal.cancelled:
            self._engine.cancel(job_id)

    def poll_cancellations(self) -> None:
        """Cancel the held jobs whose client asked for it. Raises SQLAlchemyError."""
        with self._database.transaction() as session:
            asked = leases.cancel_requests(session, list(self._held.fences()))
        for job_id in asked:
            self._engine.cancel(job_id)

    def abort_overdue(self) -> None:
        """Stop generations whose lease could not be renewed in time. Needs no database."""
        for job_id in self._held.overdue():
            self._lost(job_id)

    def _lost(self, job_id: str) -> None:
        if self._engine.abort(job_id, LeaseLostError(LEASE_LOST)):
            log.warning("lease lost", job_id=job_id)
