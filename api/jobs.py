"""`/v1/jobs`: submit, read, wait, list, cancel, erase, retry."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.auth import Identity
from api.dependencies import IdempotencyKey, JobBody, JobId, Provided, Reader, Services, Submitter, caller_of
from api.job_view import DeletedJob, JobList, JobView, view
from api.openapi import JOB_BODY, errors
from shared import job_actions, jobs_repository
from shared.errors import InvalidInputError
from shared.jobs_repository import Submission
from shared.states import JobState

MAX_WAIT_SECONDS = 60
_CURSOR = re.compile(r"job_[0-9a-f]{32}")
router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the end of the job")]


def read(services: Services, job_id: str, identity: Identity) -> JobView:
    """Return a job of this key as it is now.

    Raises:
        NotFoundError: no such job for this key.
    """
    with services.database.transaction() as session:
        job, result = jobs_repository.get(session, job_id, identity.api_key_id)
    return view(services.keyring, job, result)


async def wait_for(services: Services, job_id: str, identity: Identity, seconds: float) -> JobView:
    """Return the job at its end, or as it is after `seconds`."""
    seen = await run_in_threadpool(read, services, job_id, identity)
    if seen.status.terminal or seconds <= 0:
        return seen
    await services.waiter.wait(job_id, seconds)
    return await run_in_threadpool(read, services, job_id, identity)


def submitted(services: Services, submission: Submission, identity: Identity, response: Response) -> JobView:
    """Return the job of a submission and mark a replay; its output is shown to keys that may read only."""
    if submission.created:
        return view(services.keyring, submission.job, None)
    response.status_code = 200
    response.headers["Idempotent-Replay"] = "true"
    return (
        read(services, submission.job.id, identity)
        if identity.may("read")
        else view(services.keyring, submission.job, None)
    )


@router.post("", status_code=202, openapi_extra=JOB_BODY, responses=errors(400, 404, 409, 413, 415, 429))
def submit_job(  # noqa: PLR0913, PLR0917  # one parameter per part of the request
    identity: Submitter, key: IdempotencyKey, body: JobBody, services: Provided, request: Request, response: Response
) -> JobView:
    """Queue a job and return at once.

    With an `Idempotency-Key`, a repeat answers 200 with the first job and `Idempotent-Replay: true`, and the same key
    with another body answers 409.
    """
    submission = services.submissions.submit(body, caller_of(request, identity, key))
    return submitted(services, submission, identity, response)


@router.get("/{job_id}", responses=errors(400, 404))
async def get_job(identity: Reader, job_id: JobId, services: Provided, wait: Wait = 0) -> JobView:
    """Return a job; with `wait`, at its end or after that many seconds, whichever comes first."""
    return await wait_for(services, job_id, identity, wait)


@router.get("", responses=errors(400))
def list_jobs(
    identity: Reader,
    services: Provided,
    status: Annotated[JobState | None, Query(description="Only jobs in this state")] = None,
    after: Annotated[str | None, Query(description="Only jobs older than this one")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> JobList:
    """Return the key's jobs, newest first."""
    if after is not None and not _CURSOR.fullmatch(after):
        raise InvalidInputError("after must be the id of a job: send the last_id of the page before", field="after")
    with services.database.transaction() as session:
        # One more than asked for tells whether there is a next page.
        rows = jobs_repository.list_page(session, identity.api_key_id, state=status, after=after, limit=limit + 1)
    page = [view(services.keyring, job, result) for job, result in rows[:limit]]
    return JobList(
        data=page,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
        has_more=len(rows) > limit,
    )


@router.post("/{job_id}/cancel", responses=errors(404, 409))
def cancel_job(identity: Submitter, job_id: JobId, services: Provided, request: Request) -> JobView:
    """Cancel a queued job at once; a running one stops within a step of its worker."""
    caller = caller_of(request, identity)
    with services.database.transaction() as session:
        job = jobs_repository.request_cancel(session, job_id, identity.api_key_id, caller.address)
    return view(services.keyring, job, None)


@router.delete("/{job_id}", responses=errors(404, 409))
def delete_job(identity: Submitter, job_id: JobId, services: Provided, request: Request) -> DeletedJob:
    """Erase a job that ended, with its prompt, output and labels. Only audit events without content stay."""
    caller = caller_of(request, identity)
    with services.database.transaction() as session:
        job_actions.delete_job(session, job_id, identity.api_key_id, caller.address)
    return DeletedJob(id=job_id)


@router.post("/{job_id}/retry", responses=errors(404, 409))
def retry_job(identity: Submitter, job_id: JobId, services: Provided, request: Request) -> JobView:
    """Queue a failed, dead, cancelled or expired job again, with all its attempts."""
    caller = caller_of(request, identity)
    with services.database.transaction() as session:
        job = job_actions.retry(session, job_id, identity.api_key_id, caller.address)
    services.publisher.offer(job.id)
    return view(services.keyring, job, None)
