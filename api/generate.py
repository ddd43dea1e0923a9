"""`/generate`: submit and wait, for a first try and for scripts that want text back."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from api.dependencies import IdempotencyKey, JobBody, Provided, SubmittingReader, caller_of
from api.errors import error_body, status_of
from api.job_view import GenerationView, JobView
from api.jobs import Wait, wait_for
from api.openapi import JOB_BODY, errors
from shared.states import JobState

WAIT_SECONDS = 30.0
router = APIRouter(tags=["generate"])


@router.post(
    "/generate",
    openapi_extra=JOB_BODY,
    response_model=GenerationView,
    responses=errors(400, 404, 409, 413, 415, 429, 500) | {202: {"model": JobView, "description": "Poll `status_url`"}},
)
async def generate(  # noqa: PLR0913, PLR0917  # one parameter per part of the request
    identity: SubmittingReader,
    key: IdempotencyKey,
    body: JobBody,
    services: Provided,
    request: Request,
    wait: Wait = WAIT_SECONDS,
) -> Response:
    """Submit a job and return its text, or the job itself when it takes longer than `wait` seconds."""
    submission = await run_in_threadpool(services.submissions.submit, body, caller_of(request, identity, key))
    job = await wait_for(services, submission.job.id, identity, wait)
    headers = {} if submission.created else {"Idempotent-Replay": "true"}
    if not job.status.terminal:
        return JSONResponse(job.model_dump(mode="json"), 202, headers)
    if job.status != JobState.COMPLETED:
        return _ended_without_text(job, headers)
    finished = GenerationView(**dict(job), text=job.output or "")
    return JSONResponse(finished.model_dump(mode="json"), headers=headers)


def _ended_without_text(job: JobView, headers: dict[str, str]) -> Response:
    code = job.error.code if job.error else "cancelled"
    reason = job.error.message if job.error else "it was cancelled"
    message = f"job {job.id} ended {job.status}: {reason}; read it at {job.status_url}"
    # The job has ended: sending the same again would be another job, which is for the caller to decide.
    return JSONResponse(error_body(code, message), status_of(code), {**headers, "x-should-retry": "false"})
