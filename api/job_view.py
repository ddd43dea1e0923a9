"""A job as its owner sees it."""

import json
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.crypto import KeyRing, Sealed
from shared.models import Job, Result
from shared.states import JobState, Priority

EXAMPLE: dict[str, Any] = {
    "id": "job_019ad8f0c1d27b3e8a64b1c0d2e3f405",
    "object": "job",
    "status": "completed",
    "status_url": "/v1/jobs/job_019ad8f0c1d27b3e8a64b1c0d2e3f405",
    "created_at": "2026-12-01T08:00:00.120000Z",
    "started_at": "2026-12-01T08:00:00.150000Z",
    "finished_at": "2026-12-01T08:00:01.420000Z",
    "cancel_requested_at": None,
    "deadline": None,
    "priority": "normal",
    "attempts": 1,
    "max_attempts": 3,
    "model": "smollm2-135m-instruct",
    "model_version": "int8-1",
    "output": "Paris",
    "finish_reason": "stop",
    "logprobs": None,
    "choices": None,
    "usage": {"prompt_tokens": 31, "cached_tokens": 0, "completion_tokens": 2, "total_tokens": 33},
    "timings": {"queue_ms": 30.0, "prefill_ms": 52.1, "decode_ms": 40.2, "tokens_per_second": 49.8},
    "privacy": {"entities": {}, "policy": "default@1", "ms": 0.2},
    "error": None,
    "metadata": {"document": "42"},
}


class Usage(BaseModel):
    """Tokens; `cached_tokens` of the prompt came from the prefix cache."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    total_tokens: int


class Timings(BaseModel):
    """Milliseconds in the queue, for the prompt and for the output; output tokens per second of decoding."""

    queue_ms: float
    prefill_ms: float
    decode_ms: float
    tokens_per_second: float | None


class TokenChoice(BaseModel):
    """A token and its log probability; `bytes` may end inside a character, `token` shows U+FFFD there."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(TokenChoice):
    """A token of the output, with the most likely ones at its place, best first."""

    top_logprobs: list[TokenChoice]


class Logprobs(BaseModel):
    """Log probabilities in OpenAI's shape, of the model's own distribution."""

    content: list[ChosenToken]


class Choice(BaseModel):
    """One of several outputs."""

    index: int
    output: str
    finish_reason: str
    logprobs: Logprobs | None


class JobFailure(BaseModel):
    """Why a job ended without a result."""

    code: str
    message: str
    retryable: bool


class JobView(BaseModel):
    """A job: `queued` and `running` ones change, all others are final. Times are RFC 3339, UTC."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: str
    object: Literal["job"] = "job"
    status: JobState
    status_url: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    deadline: datetime | None
    priority: Priority
    attempts: int
    max_attempts: int
    model: str
    model_version: str | None
    output: str | None
    finish_reason: str | None
    logprobs: Logprobs | None = Field(description="Null too where personal data was taken out of the output")
    choices: list[Choice] | None = Field(description="All outputs where n is above 1, `output` being the first")
    usage: Usage | None
    timings: Timings | None
    privacy: dict[str, Any] | None = Field(description="Kinds and counts of what was scrubbed, never values")
    error: JobFailure | None
    metadata: dict[str, str]


class GenerationView(JobView):
    """A finished job of `/generate`; `text` is its output."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE | {"text": EXAMPLE["output"]}]})

    text: str


class JobList(BaseModel):
    """One page, newest first. Pass `last_id` as `after` for the next one."""

    object: Literal["list"] = "list"
    data: list[JobView]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedJob(BaseModel):
    """Says that a job is gone."""

    id: str
    object: Literal["job"] = "job"
    deleted: Literal[True] = True


def view(keyring: KeyRing, job: Job, result: Result | None) -> JobView:
    """Return `job` for its owner, with the output decrypted when there is a result.

    Raises:
        DecryptionError: the output does not decrypt with the configured keys.
    """
    stored = _opened(keyring, result)
    choices = _choices(result, stored) if result and stored else []
    return JobView(
        id=job.id,
        status=JobState(job.state),
        status_url=f"/v1/jobs/{job.id}",
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        cancel_requested_at=job.cancel_requested_at,
        deadline=job.deadline,
        priority=Priority(job.priority),
        attempts=job.attempt,
        max_attempts=job.max_attempts,
        model=job.model,
        model_version=job.model_version,
        output=stored["text"] if stored else None,
        finish_reason=result.finish_reason if result else None,
        logprobs=choices[0].logprobs if choices else None,
        choices=choices if len(choices) > 1 else None,
        usage=_usage(result) if result else None,
        timings=_timings(result) if result else None,
        privacy=result.privacy_receipt if result else None,
        error=_failure(job),
        metadata=job.client_metadata,
    )


def _opened(keyring: KeyRing, result: Result | None) -> dict[str, Any] | None:
    if result is None or result.output_ciphertext is None or result.output_key_id is None:
        return None
    sealed = Sealed(result.output_key_id, result.output_ciphertext)
    stored: dict[str, Any] = json.loads(keyring.open(sealed, context=f"job:{result.job_id}:output"))
    return stored


def _choices(result: Result, stored: dict[str, Any]) -> list[Choice]:
    return [
        Choice(
            index=index,
            output=choice["text"],
            finish_reason=choice.get("finish_reason", result.finish_reason),
            logprobs=choice.get("logprobs"),  # outputs of older versions have none
        )
        for index, choice in enumerate([stored, *stored.get("choices", ())])
    ]


def _usage(result: Result) -> Usage:
    return Usage(
        prompt_tokens=result.prompt_tokens,
        cached_tokens=result.cached_tokens,
        completion_tokens=result.completion_tokens,
        total_tokens=result.prompt_tokens + result.completion_tokens,
    )


def _timings(result: Result) -> Timings:
    speed = result.completion_tokens / result.decode_ms * 1000 if result.decode_ms > 0 else None
    return Timings(
        queue_ms=round(result.queue_ms, 2),
        prefill_ms=round(result.prefill_ms, 2),
        decode_ms=round(result.decode_ms, 2),
        tokens_per_second=None if speed is None else round(speed, 2),
    )


def _failure(job: Job) -> JobFailure | None:
    if job.error_code is None:
        return None
    return JobFailure(code=job.error_code, message=job.error_message or "", retryable=bool(job.error_retryable))
