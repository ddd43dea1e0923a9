"""What a worker writes about its jobs, each in one transaction, repeated while the database is away.

Every write is guarded by the fence, so repeating it is safe: a commit whose answer was lost is found by reading again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from shared import leases, recovery
from shared.crypto import Sealed
from shared.database import Database
from shared.errors import GenerationFailedError, LeaseLostError
from shared.leases import FinishedOutput, JobError
from shared.models import Job
from shared.states import JobState
from workers.retry_policy import AttemptFacts, Close, decide

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
GIVE_UP_AFTER_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A job this worker holds. `since` is a `time.monotonic()` before the claim, `at` the database's time of it."""

    job: Job
    since: float
    at: datetime

    def database_now(self) -> datetime:
        """Return the database's time by our monotonic clock, late by at most the duration of the claim."""
        return self.at + timedelta(seconds=time.monotonic() - self.since)

    def monotonic_deadline(self) -> float | None:
        """Return the job's deadline as a `time.monotonic()` value."""
        deadline = self.job.deadline
        return None if deadline is None else self.since + (deadline - self.at).total_seconds()


def database_is_away(error: SQLAlchemyError) -> bool:
    """Whether the same statement may succeed later."""
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return lost or isinstance(error, OperationalError | InterfaceError | PoolTimeoutError)


def _pauses() -> Iterator[float]:
    pause, waited = FIRST_PAUSE_SECONDS, 0.0
    while waited < GIVE_UP_AFTER_SECONDS:
        yield pause
        waited += pause
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


class JobStore:
    """Claims jobs for one worker and ends their attempts. Thread safe."""

    def __init__(self, database: Database, worker_id: str, lease: timedelta) -> None:
        """Claim as `worker_id`, for `lease` at a time."""
        self._database = database
        self._worker_id = worker_id
        self._lease = lease

    def claim(self, job_id: str, *, alone: bool) -> Claim | None:
        """Take the job; None when there is nothing to take (see `leases.claim`). Raises SQLAlchemyError."""
        since = time.monotonic()
        with self._database.transaction() as session:
            job = leases.claim(session, job_id, self._worker_id, self._lease, alone=alone)
        if job is None or job.lease_until is None:
            return None
        return Claim(job, since, job.lease_until - self._lease)

    def replace_prompt(self, claim: Claim, sealed: Sealed) -> None:
        """Keep the scrubbed prompt only.

        Raises:
            LeaseLostError: another attempt holds the job.
            SQLAlchemyError: the database failed.
        """
        with self._database.transaction() as session:
            if not leases.replace_prompt(session, claim.job.id, claim.job.fence, sealed):
                raise LeaseLostError("another attempt holds the job")

    def is_suspect(self, job_id: str) -> bool:
        """Whether the job waits for a worker that runs nothing else. Raises SQLAlchemyError."""
        with self._database.transaction() as session:
            return leases.is_suspect(session, job_id)

    def wake(self, job_id: str) -> None:
        """Have the job's message published anew: we took it but cannot act on it. Raises SQLAlchemyError."""
        with self._database.transaction() as session:
            recovery.wake(session, job_id)

    def complete(self, claim: Claim, output: FinishedOutput) -> bool:
        """Store the result; False when the lease was lost and the work is discarded."""
        job = claim.job
        return self._settle(
            job, lambda session: leases.complete(session, job.id, job.fence, output), {JobState.COMPLETED}
        )

    def fail(self, claim: Claim, error: JobError) -> bool:
        """Give the job back or end it, as the retry policy says; False when the lease was lost."""
        job = claim.job
        facts = AttemptFacts(job.attempt, job.max_attempts, claim.database_now(), job.deadline)
        decision = decide(error, facts)
        if isinstance(decision, Close):
            state = decision.state
            return self._settle(job, lambda session: leases.close(session, job.id, job.fence, state, error), {state})
        return self._settle(
            job,
            lambda session: leases.give_back(
                session,
                job.id,
                job.fence,
                decision.delay,
                error,
                free=decision.free,
                # One of the sequences that shared the step may be to blame; alone, each shows whether it was the one.
                isolate=error.code == GenerationFailedError.code,
            ),
            {JobState.QUEUED, JobState.CANCELLED},
        )

    def _settle(self, job: Job, write: Callable[[Session], bool], targets: set[JobState]) -> bool:
        """Apply `write` until the database answers; a lost answer is read back by the fence."""
        for pause in _pauses():
            try:
                return self._write(write) or self._outcome(job) in targets
            except SQLAlchemyError as error:
                if not database_is_away(error):
                    raise
                log.warning("database away, attempt not settled yet", job_id=job.id, retry_in=pause)
                time.sleep(pause)
        log.error("attempt given up: the database stayed away", job_id=job.id, fence=job.fence)
        return False

    def _write(self, write: Callable[[Session], bool]) -> bool:
        with self._database.transaction() as session:
            return write(session)

    def _outcome(self, job: Job) -> JobState | None:
        with self._database.transaction() as session:
            return leases.outcome_of(session, job.id, job.fence)
