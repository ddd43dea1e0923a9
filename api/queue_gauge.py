"""Backpressure: how many jobs wait, known closely enough without counting for every submission."""

import threading
import time

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shared.errors import QueueFullError
from shared.models import Job
from shared.states import JobState

RECOUNT_AFTER_SECONDS = 2.0


class QueueGauge:
    """Counts queued jobs every two seconds and adds what this process submits in between. Thread safe."""

    def __init__(self, limit: int) -> None:
        """Refuse from `limit` queued jobs on."""
        self._limit = limit
        self._queued = 0
        self._counted_at = float("-inf")
        self._lock = threading.Lock()

    def admit(self, session: Session) -> None:
        """Count one more job.

        Raises:
            QueueFullError: `limit` jobs are queued.
        """
        with self._lock:
            if time.monotonic() - self._counted_at > RECOUNT_AFTER_SECONDS:
                self._queued = self._count(session)
                self._counted_at = time.monotonic()
            if self._queued >= self._limit:
                raise QueueFullError(f"{self._queued} jobs are queued, queue_limit is {self._limit}: try again later")
            self._queued += 1

    def _count(self, session: Session) -> int:
        # Counting stops at the limit: what lies beyond it changes no answer.
        waiting = select(Job.id).where(Job.state == JobState.QUEUED).limit(self._limit).subquery()
        return session.scalar(select(func.count()).select_from(waiting)) or 0
