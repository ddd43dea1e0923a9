"""What maintenance mends: leases that ran out, deadlines that passed, messages the broker lost."""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import ColumnElement, Select, and_, func, select, text, update
from sqlalchemy.orm import Session

from shared import audit, leases, outbox
from shared.errors import AttemptsExhaustedError, DeadlineExceededError
from shared.leases import JobError
from shared.models import Job, Outbox
from shared.states import JobState

ADVISORY_LOCK = 0x746D696C  # any constant: one reaper at a time, others pass
BATCH = 500

WORKER_LOST = JobError("worker_lost", "the worker stopped renewing its lease; the job was queued again", retryable=True)


def try_lock(session: Session) -> bool:
    """Take the maintenance lock until the end of this transaction; False when another process has it."""
    return bool(session.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK}))


def reap(session: Session) -> int:
    """End or requeue running jobs whose lease ran out; return how many.

    A job to be cancelled is cancelled, one without attempts left is dead, others wait again.
    """
    abandoned = [Job.state == JobState.RUNNING, Job.lease_until < func.now()]
    rows = session.scalars(select(Job).where(*abandoned).limit(BATCH).with_for_update(skip_locked=True)).all()
    for job in rows:
        _settle(session, job)
    return len(rows)


def _settle(session: Session, job: Job) -> None:
    if job.cancel_requested_at is not None:
        leases.close(session, job.id, job.fence, JobState.CANCELLED, leases.CANCELLED)
    elif job.attempt >= job.max_attempts:
        spent = f"all {job.max_attempts} attempts ended with a lost worker: check the worker logs, then retry the job"
        error = JobError(AttemptsExhaustedError.code, spent, AttemptsExhaustedError.retryable)
        leases.close(session, job.id, job.fence, JobState.DEAD, error)
    else:
        leases.give_back(session, job.id, job.fence, timedelta(0), WORKER_LOST, free=False, isolate=True)


def expire(session: Session) -> int:
    """Expire queued jobs whose deadline passed; return how many. Running ones are stopped by their worker."""
    late = session.scalars(
        update(Job)
        .where(Job.state == JobState.QUEUED, Job.deadline <= func.now())
        .values(
            state=JobState.EXPIRED,
            finished_at=func.now(),
            error_code=DeadlineExceededError.code,
            error_message="the deadline passed while the job was queued: submit it again with a later one",
            error_retryable=False,
        )
        .returning(Job)
    ).all()
    for job in late:
        error = JobError(DeadlineExceededError.code, job.error_message or "", retryable=False)
        leases.record_failure(session, job, error)
        audit.record(session, "job.expired", job_id=job.id, api_key_id=job.api_key_id, details={"code": error.code})
    return len(late)


def _published() -> ColumnElement[bool]:
    unpublished = select(Outbox.id).where(Outbox.job_id == Job.id)
    return and_(Job.state == JobState.QUEUED, Job.run_after <= func.now(), ~unpublished.exists())


def published_per_model(session: Session) -> dict[str, int]:
    """Return how many due jobs of each model wait for a worker and ought to have a message in the broker."""
    rows = session.execute(select(Job.model, func.count()).where(_published()).group_by(Job.model))
    return {row[0]: row[1] for row in rows}


def republish(session: Session, missing: Mapping[str, int], older_than: timedelta) -> int:
    """Write outbox rows for up to `missing[model]` due jobs published before `older_than` ago; return how many.

    A message may have been lost (broker wiped, worker killed before it noted the message). One too many is harmless:
    the claim lets a single attempt through.
    """
    total = 0
    for model, count in missing.items():
        due = _stale(model, older_than).limit(min(count, BATCH)).with_for_update(skip_locked=True)
        jobs = session.scalars(due).all()
        outbox.enqueue(session, jobs)
        total += len(jobs)
    return total


def _stale(model: str, older_than: timedelta) -> Select[Job]:
    # A job whose relay was overtaken by a claim was never noted as published; the claim that gave it back wrote anew.
    old = func.coalesce(Job.published_at, Job.run_after) < func.now() - older_than
    return select(Job).where(Job.model == model, _published(), old).order_by(Job.published_at)


def wake(session: Session, job_id: str) -> None:
    """Write an outbox row for a queued job whose message a worker took but could not act on."""
    outbox.enqueue(session, session.scalars(select(Job).where(Job.id == job_id, Job.state == JobState.QUEUED)).all())
