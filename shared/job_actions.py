"""What owners do to jobs that ended: erase them, or run them again. And the look-up of a replayed submission."""

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.orm import Session

from shared import audit, jobs_repository, outbox
from shared.errors import StateConflictError
from shared.models import Job
from shared.states import RETRYABLE, TERMINAL, JobState


def find_submission(session: Session, api_key_id: str, idempotency_key: str) -> Job | None:
    """Return the job this key submitted under `idempotency_key`, if there is one."""
    query = select(Job).where(Job.api_key_id == api_key_id, Job.idempotency_key == idempotency_key)
    return session.scalars(query).one_or_none()


def delete_job(session: Session, job_id: str, api_key_id: str, caller_address: str | None) -> None:
    """Erase a job that ended: prompt, output, labels and attempts go; the audit events stay.

    Raises:
        NotFoundError: no such job for this key.
        StateConflictError: the job has not ended yet.
    """
    statement = delete(Job).where(Job.id == job_id, Job.api_key_id == api_key_id, Job.state.in_(TERMINAL))
    if session.scalars(statement.returning(Job.id)).one_or_none() is None:
        job, _ = jobs_repository.get(session, job_id, api_key_id)
        raise StateConflictError(
            f"the job is {job.state}: cancel it or wait for its end, then delete it", field="status"
        )
    audit.record(
        session, "job.deleted", job_id=job_id, api_key_id=api_key_id, caller_address=caller_address, details={}
    )


def retry(session: Session, job_id: str, api_key_id: str, caller_address: str | None) -> Job:
    """Queue a job that ended without a result again, with all its attempts; a deadline that passed is dropped.

    Raises:
        NotFoundError: no such job for this key.
        StateConflictError: the job completed, has not ended, or its prompt was not kept.
    """
    owned = [Job.id == job_id, Job.api_key_id == api_key_id, Job.prompt_ciphertext.is_not(None)]
    job = session.scalars(
        update(Job)
        .where(*owned, Job.state.in_(RETRYABLE))
        .values(
            state=JobState.QUEUED,
            attempt=0,
            isolate=False,
            run_after=func.now(),
            published_at=None,
            cancel_requested_at=None,
            started_at=None,
            finished_at=None,
            deadline=case((Job.deadline > func.now(), Job.deadline), else_=None),
            error_code=None,
            error_message=None,
            error_retryable=None,
        )
        .returning(Job)
    ).one_or_none()
    if job is None:
        raise _not_retryable(jobs_repository.get(session, job_id, api_key_id)[0])
    outbox.enqueue(session, [job])
    audit.record(
        session, "job.retried", job_id=job_id, api_key_id=api_key_id, caller_address=caller_address, details={}
    )
    return job


def _not_retryable(job: Job) -> StateConflictError:
    if job.state in RETRYABLE:
        return StateConflictError("the job's prompt was not kept: submit the job again", field="status")
    return StateConflictError(
        f"the job is {job.state}: only failed, dead, cancelled or expired jobs can be retried", field="status"
    )
