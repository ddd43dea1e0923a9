"""Jobs as their owners see them: submit, read, list, cancel. Claims and finishes stand in `shared.leases`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, case, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared import audit, outbox
from shared.errors import IdempotencyConflictError, NotFoundError, StateConflictError
from shared.models import Job, JsonObject, Result
from shared.states import TERMINAL, JobState, Priority


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a submission writes. `prompt_ciphertext` is sealed for context `job:<id>:prompt`."""

    id: str
    api_key_id: str
    model: str
    sampling: JsonObject
    priority: Priority
    prompt_ciphertext: bytes
    prompt_key_id: str
    prompt_characters: int
    input_digest: bytes
    correlation_id: str
    max_attempts: int
    idempotency_key: str | None = None
    client_metadata: JsonObject | None = None
    deadline: datetime | None = None
    caller_address: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """The job a submission led to, and whether this submission created it."""

    job: Job
    created: bool


def submit(session: Session, new: NewJob) -> Submission:
    """Write job, outbox row and audit event; an idempotency key already used gives the first job back.

    Raises:
        IdempotencyConflictError: the key was used with a different body.
    """
    job = session.scalars(_insert_unless_known(new)).one_or_none()
    if job is None:
        return Submission(_same_submission(session, new), created=False)
    outbox.enqueue(session, [job])
    audit.record(
        session,
        "job.submitted",
        job_id=job.id,
        api_key_id=job.api_key_id,
        caller_address=new.caller_address,
        details={"model": job.model, "input_characters": job.prompt_characters, "priority": job.priority},
    )
    return Submission(job, created=True)


def _insert_unless_known(new: NewJob) -> Any:  # noqa: ANN401  # SQLAlchemy's type here spans three lines
    values = {
        "id": new.id,
        "api_key_id": new.api_key_id,
        "model": new.model,
        "sampling": new.sampling,
        "client_metadata": new.client_metadata or {},
        "priority": new.priority.value,
        "prompt_ciphertext": new.prompt_ciphertext,
        "prompt_key_id": new.prompt_key_id,
        "prompt_characters": new.prompt_characters,
        "input_digest": new.input_digest,
        "correlation_id": new.correlation_id,
        "max_attempts": new.max_attempts,
        "idempotency_key": new.idempotency_key,
        "deadline": new.deadline,
    }
    keys = [Job.api_key_id, Job.idempotency_key]
    return insert(Job).values(values).on_conflict_do_nothing(index_elements=keys).returning(Job)


def _same_submission(session: Session, new: NewJob) -> Job:
    found = session.scalars(
        select(Job).where(Job.api_key_id == new.api_key_id, Job.idempotency_key == new.idempotency_key)
    ).one()
    if found.input_digest != new.input_digest:
        raise IdempotencyConflictError(
            "this Idempotency-Key was used before with a different body: send the same body or a new key",
            field="Idempotency-Key",
        )
    return found


def get(session: Session, job_id: str, api_key_id: str) -> Row[Job, Result]:
    """Return a job of this key with its result, if there is one yet.

    Raises:
        NotFoundError: no such job, or it belongs to another key.
    """
    row = session.execute(
        select(Job, Result)
        .join(Result, Result.job_id == Job.id, isouter=True)
        .where(Job.id == job_id, Job.api_key_id == api_key_id)
    ).one_or_none()
    if row is None:
        raise NotFoundError("no such job for this API key: check the id", field="id")
    return row


def list_page(
    session: Session, api_key_id: str, *, state: JobState | None, after: str | None, limit: int
) -> Sequence[Row[Job, Result]]:
    """Return up to `limit` jobs of this key, newest first, strictly older than job `after`."""
    query = select(Job, Result).join(Result, Result.job_id == Job.id, isouter=True).where(Job.api_key_id == api_key_id)
    if state is not None:
        query = query.where(Job.state == state)
    if after is not None:
        query = query.where(Job.id < after)
    return session.execute(query.order_by(Job.id.desc()).limit(limit)).all()


def finished_among(session: Session, job_ids: Sequence[str]) -> set[str]:
    """Return those of `job_ids` that reached a terminal state or do not exist any more."""
    unfinished = select(Job.id).where(Job.id.in_(job_ids), Job.state.not_in(TERMINAL))
    return set(job_ids) - set(session.scalars(unfinished))


def request_cancel(session: Session, job_id: str, api_key_id: str, caller_address: str | None) -> Job:
    """Cancel a queued job at once; mark a running one, whose worker stops within a step.

    Raises:
        NotFoundError: no such job for this key.
        StateConflictError: the job already ended otherwise.
    """
    queued = Job.state == JobState.QUEUED
    job = session.scalars(
        update(Job)
        .where(Job.id == job_id, Job.api_key_id == api_key_id, Job.state.in_([JobState.QUEUED, JobState.RUNNING]))
        .values(
            cancel_requested_at=func.coalesce(Job.cancel_requested_at, func.now()),
            state=case((queued, JobState.CANCELLED.value), else_=Job.state),
            finished_at=case((queued, func.now()), else_=None),
        )
        .returning(Job)
    ).one_or_none()
    if job is None:
        return _already_cancelled(get(session, job_id, api_key_id)[0])
    audit.record(
        session, "job.cancel_requested", job_id=job_id, api_key_id=api_key_id, caller_address=caller_address, details={}
    )
    return job


def _already_cancelled(job: Job) -> Job:
    if job.state != JobState.CANCELLED:
        raise StateConflictError(f"the job is already {job.state}: nothing is left to cancel", field="status")
    return job


def depth(session: Session) -> dict[str, int]:
    """Return how many jobs are queued and how many run."""
    counts = session.execute(
        select(Job.state, func.count()).where(Job.state.in_([JobState.QUEUED, JobState.RUNNING])).group_by(Job.state)
    ).all()
    return {JobState.QUEUED.value: 0, JobState.RUNNING.value: 0} | {row[0]: row[1] for row in counts}
