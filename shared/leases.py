"""Claims on jobs: take, renew, finish, give back. Each is one conditional UPDATE under the database's clock.

A claim holds while `lease_until` lies ahead; `fence` tells its attempt from every other. Whatever a worker writes is
guarded by the fence it was given, so that a worker which lost its lease can change nothing any more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, not_, or_, select, true, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared import audit, outbox
from shared.crypto import Sealed
from shared.errors import CancelledError
from shared.models import Attempt, FailureMetric, Job, JsonObject, Result
from shared.states import JobState, sources_of


@dataclass(frozen=True, slots=True)
class JobError:
    """Why an attempt ended without a result; `message` is for people and free of content."""

    code: str
    message: str
    retryable: bool


CANCELLED = JobError(CancelledError.code, "cancelled by the client", retryable=False)


@dataclass(frozen=True, slots=True)
class FinishedOutput:
    """A completed generation as it is stored. `output_ciphertext` is sealed for context `job:<id>:output`."""

    output_ciphertext: bytes
    output_key_id: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_ms: float
    prefill_ms: float
    decode_ms: float
    model_version: str
    privacy_receipt: JsonObject


@dataclass(frozen=True, slots=True)
class Renewal:
    """Outcome of a heartbeat: jobs no longer ours, and jobs whose client wants them cancelled."""

    lost: frozenset[str]
    cancelled: frozenset[str]


def _waiting() -> ColumnElement[bool]:
    return and_(Job.state == JobState.QUEUED, Job.run_after <= func.now())


def _claimable() -> ColumnElement[bool]:
    abandoned = and_(Job.state == JobState.RUNNING, Job.lease_until < func.now(), Job.attempt < Job.max_attempts)
    in_time = or_(Job.deadline.is_(None), Job.deadline > func.now())
    return and_(or_(_waiting(), abandoned), in_time, Job.cancel_requested_at.is_(None))


def _suspect() -> ColumnElement[bool]:
    return or_(Job.isolate, Job.state == JobState.RUNNING)


def claim(session: Session, job_id: str, worker_id: str, lease: timedelta, *, alone: bool = True) -> Job | None:
    """Take the job: lease it, count the attempt, raise the fence. None: somebody else has it, or it has ended.

    A job whose worker was lost may be what killed it: a caller that is not `alone` does not get it (see `is_suspect`).
    """
    job = session.scalars(
        update(Job)
        .where(Job.id == job_id, _claimable(), true() if alone else not_(_suspect()))
        .values(
            state=JobState.RUNNING,
            fence=Job.fence + 1,
            attempt=Job.attempt + 1,
            worker_id=worker_id,
            lease_until=func.now() + lease,
            started_at=func.coalesce(Job.started_at, func.now()),
            isolate=_suspect(),
        )
        .returning(Job)
    ).one_or_none()
    if job is not None:
        close_attempts(session, [job_id], outcome="lost")
        session.execute(insert(Attempt).values(job_id=job_id, fence=job.fence, worker_id=worker_id))
    return job


def is_suspect(session: Session, job_id: str) -> bool:
    """Whether the job can be claimed, but only by a worker that runs nothing else meanwhile."""
    return session.scalar(select(Job.id).where(Job.id == job_id, _claimable(), _suspect())) is not None


def outcome_of(session: Session, job_id: str, fence: int) -> JobState | None:
    """Return where the attempt with `fence` left the job; None: a later one claimed it, or it is gone."""
    state = session.scalar(select(Job.state).where(Job.id == job_id, Job.fence == fence))
    return None if state is None else JobState(state)


def renew(session: Session, held: Mapping[str, int], lease: timedelta) -> Renewal:
    """Extend the leases of `held` (job id -> fence) in one statement."""
    if not held:
        return Renewal(frozenset(), frozenset())
    rows = session.execute(
        update(Job)
        .where(tuple_(Job.id, Job.fence).in_(list(held.items())), Job.state == JobState.RUNNING)
        .values(lease_until=func.now() + lease)
        .returning(Job.id, Job.cancel_requested_at)
    ).all()
    kept = {row.id for row in rows}
    asked = {row.id for row in rows if row.cancel_requested_at is not None}
    return Renewal(frozenset(held.keys() - kept), frozenset(asked))


def cancel_requests(session: Session, held: Sequence[str]) -> set[str]:
    """Return those of `held` whose client asked for cancellation."""
    return set(session.scalars(select(Job.id).where(Job.id.in_(held), Job.cancel_requested_at.is_not(None))))


def replace_prompt(session: Session, job_id: str, fence: int, sealed: Sealed) -> bool:
    """Put the scrubbed prompt in the place of the one that was sent; False when the fence was lost."""
    statement = (
        update(Job)
        .where(Job.id == job_id, Job.fence == fence, Job.state == JobState.RUNNING)
        .values(prompt_ciphertext=sealed.blob, prompt_key_id=sealed.key_id)
    )
    return session.scalar(statement.returning(Job.id)) is not None


def complete(session: Session, job_id: str, fence: int, output: FinishedOutput) -> bool:
    """Write result, state, attempt and audit event in the caller's transaction; False when the fence was lost."""
    job = _leave_running(session, job_id, fence, JobState.COMPLETED, model_version=output.model_version)
    if job is None:
        return False
    values = {name: getattr(output, name) for name in FinishedOutput.__slots__ if name != "model_version"}
    session.execute(insert(Result).values(job_id=job_id, fence=fence, **values))
    close_attempts(session, [job_id], outcome=JobState.COMPLETED)
    audit.record(session, "job.completed", job_id=job_id, api_key_id=job.api_key_id, details=_audited(output))
    return True


def _audited(output: FinishedOutput) -> JsonObject:
    return {
        "model_version": output.model_version,
        "input_tokens": output.prompt_tokens,
        "output_tokens": output.completion_tokens,
        "response_ms": round(output.queue_ms + output.prefill_ms + output.decode_ms, 1),
        "entities": output.privacy_receipt.get("entities", {}),
    }


def close(session: Session, job_id: str, fence: int, state: JobState, error: JobError) -> bool:
    """End a running job without a result (`failed`, `dead`, `cancelled` or `expired`); False: fence lost."""
    job = _leave_running(
        session,
        job_id,
        fence,
        state,
        error_code=error.code,
        error_message=error.message,
        error_retryable=error.retryable,
    )
    if job is None:
        return False
    _record_end(session, job, outcome=state, error=error)
    return True


def give_back(  # noqa: PLR0913  # one argument per fact of the transition
    session: Session,
    job_id: str,
    fence: int,
    delay: timedelta,
    error: JobError,
    *,
    free: bool,
    isolate: bool = False,
) -> bool:
    """Queue a running job again after `delay`, or cancel it if its client asked for that; False: fence lost.

    `free` returns the attempt too: the job is not to blame. `isolate` makes the coming attempts run alone.
    """
    job = _leave_running(
        session,
        job_id,
        fence,
        JobState.QUEUED,
        Job.cancel_requested_at.is_(None),
        run_after=func.now() + delay,
        finished_at=None,
        published_at=None,
        attempt=Job.attempt - (1 if free else 0),
        isolate=true() if isolate else Job.isolate,
    )
    if job is None:
        return close(session, job_id, fence, JobState.CANCELLED, CANCELLED)
    outbox.enqueue(session, [job], not_before=job.run_after)
    _record_end(session, job, outcome=JobState.QUEUED, error=error)
    return True


def _leave_running(  # one keyword per column, of mixed types
    session: Session,
    job_id: str,
    fence: int,
    state: JobState,
    *conditions: ColumnElement[bool],
    **values: Any,  # noqa: ANN401
) -> Job | None:
    held = [Job.id == job_id, Job.fence == fence, Job.state.in_(sources_of(state) & {JobState.RUNNING})]
    return session.scalars(
        update(Job)
        .where(*held, *conditions)
        .values({"state": state, "lease_until": None, "finished_at": func.now(), **values})
        .returning(Job)
    ).one_or_none()


def close_attempts(session: Session, job_ids: Sequence[str], *, outcome: str, error_code: str | None = None) -> None:
    """Close the open attempts of these jobs."""
    session.execute(
        update(Attempt)
        .where(Attempt.job_id.in_(job_ids), Attempt.finished_at.is_(None))
        .values(finished_at=func.now(), outcome=outcome, error_code=error_code)
    )


def _record_end(session: Session, job: Job, *, outcome: str, error: JobError) -> None:
    close_attempts(session, [job.id], outcome=outcome, error_code=error.code)
    record_failure(session, job, error)
    audit.record(
        session,
        f"job.{'requeued' if outcome == JobState.QUEUED else outcome}",
        job_id=job.id,
        api_key_id=job.api_key_id,
        details={"code": error.code, "attempt": job.attempt},
    )


def record_failure(session: Session, job: Job, error: JobError) -> None:
    """Write one failure metric for this job's current attempt."""
    session.add(
        FailureMetric(
            job_id=job.id,
            code=error.code,
            retryable=error.retryable,
            model=job.model,
            model_version=job.model_version,
            worker_id=job.worker_id,
        )
    )
