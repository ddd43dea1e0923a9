"""The way of one job inside a worker: claim, scrub, generate, settle."""

from concurrent.futures import Future
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared.errors import LeaseLostError, TokenmillError, WorkerStoppingError
from shared.leases import FinishedOutput, JobError
from shared.states import Priority
from workers.engine.sequence import GenerationOutput, GenerationRequest
from workers.held_jobs import HeldJobs
from workers.isolation_gate import IsolationGate
from workers.job_content import JobContent, Prompt
from workers.job_store import Claim, JobStore

log = structlog.get_logger(__name__)

UNEXPECTED = JobError("internal_error", "an unexpected error ended the attempt; see the worker's log", retryable=True)


class Generator(Protocol):
    """The part of the engine a job needs."""

    def submit(self, request: GenerationRequest) -> Future[GenerationOutput]:
        """Queue a generation."""
        ...


class JobRunner:
    """Runs jobs by id, from as many threads as there are slots."""

    def __init__(  # noqa: PLR0913  # its parts, composed in `workers.app`
        self,
        *,
        store: JobStore,
        content: JobContent,
        engine: Generator,
        held: HeldJobs,
        gate: IsolationGate,
        model_version: str,
    ) -> None:
        """Compose; `model_version` (`name@version`) is noted with each result."""
        self._store = store
        self._content = content
        self._engine = engine
        self._held = held
        self._gate = gate
        self._model_version = model_version

    def run(self, job_id: str) -> None:
        """Bring the job a message spoke of one attempt further, or leave it: never raises for a job's sake.

        When the database is away the message is dropped; maintenance publishes another once it is back.
        """
        with self._held.admit(job_id) as fresh:
            if not fresh:
                return
            try:
                self._run_in_turn(job_id)
            except SQLAlchemyError as error:
                log.warning("message dropped: the database failed", job_id=job_id, error_type=type(error).__name__)

    def _run_in_turn(self, job_id: str) -> None:
        try:
            with self._gate.together():
                claim = self._store.claim(job_id, alone=False)
                if claim is not None:
                    self._attempt(claim)
                    return
            if self._store.is_suspect(job_id):
                self._run_alone(job_id)
        except WorkerStoppingError:
            self._store.wake(job_id)

    def _run_alone(self, job_id: str) -> None:
        with self._gate.alone():
            claim = self._store.claim(job_id, alone=True)
            if claim is not None:
                self._attempt(claim)

    def _attempt(self, claim: Claim) -> None:
        job = claim.job
        self._held.hold(job.id, job.fence, claim.since)
        with structlog.contextvars.bound_contextvars(job_id=job.id, fence=job.fence, correlation_id=job.correlation_id):
            try:
                self._generate(claim)
            except LeaseLostError:
                log.warning("lease lost, attempt discarded")
            except TokenmillError as error:
                self._fail(claim, JobError(error.code, error.message, error.retryable))
            except SQLAlchemyError:
                raise
            except Exception:
                log.exception("attempt failed unexpectedly")
                self._fail(claim, UNEXPECTED)

    def _generate(self, claim: Claim) -> None:
        job = claim.job
        prompt = self._content.prompt(job)
        if prompt.scrubbed is not None:
            self._store.replace_prompt(claim, prompt.scrubbed)
        request = GenerationRequest(
            id=job.id,
            prompt_ids=prompt.token_ids,
            params=prompt.params,
            priority=Priority(job.priority).broker_level,
            deadline=claim.monotonic_deadline(),
            cache_salt=job.api_key_id,
        )
        output = self._engine.submit(request).result()
        if self._store.complete(claim, self._finished(claim, prompt, output)):
            log.info("job completed", tokens=output.completion_tokens, attempt=job.attempt)
        else:
            log.warning("lease lost, result discarded")

    def _finished(self, claim: Claim, prompt: Prompt, output: GenerationOutput) -> FinishedOutput:
        stored = self._content.seal_output(claim.job, prompt, output)
        waited = (claim.at - claim.job.created_at).total_seconds() + output.queue_s
        return FinishedOutput(
            output_ciphertext=stored.sealed.blob,
            output_key_id=stored.sealed.key_id,
            finish_reason=output.finish_reason,
            prompt_tokens=output.prompt_tokens,
            cached_tokens=output.cached_tokens,
            completion_tokens=sum(choice.completion_tokens for choice in (output, *output.alternatives)),
            queue_ms=waited * 1000,
            prefill_ms=output.prefill_s * 1000,
            decode_ms=max(choice.decode_s for choice in (output, *output.alternatives)) * 1000,
            model_version=self._model_version,
            privacy_receipt=stored.receipt,
        )

    def _fail(self, claim: Claim, error: JobError) -> None:
        settled = self._store.fail(claim, error)
        log.info("attempt failed", code=error.code, attempt=claim.job.attempt, state="settled" if settled else "lost")
