"""From a checked body to a durable job: replay, budget, seal, one transaction, then the fast path."""

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.prompt_budget import PromptBudget
from api.publisher import Publisher
from api.queue_gauge import QueueGauge
from api.schemas import JobRequest
from shared import job_actions, jobs_repository
from shared.crypto import KeyRing, digests_equal
from shared.database import Database
from shared.errors import IdempotencyConflictError, InvalidInputError
from shared.identifiers import new_id
from shared.jobs_repository import NewJob, Submission
from shared.models import Job, JsonObject
from shared.privacy import DEFAULT, Policy
from shared.sampling import SEALED_FIELDS, SamplingParams
from shared.settings import Settings

DIGEST_PURPOSE = "input-digest"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who submits, as recorded with the job."""

    api_key_id: str
    correlation_id: str
    address: str | None
    idempotency_key: str | None = None
    policy: Policy = DEFAULT


class Submissions:
    """Accepts jobs. Thread safe."""

    def __init__(self, settings: Settings, database: Database, keyring: KeyRing, publisher: Publisher) -> None:
        """Write to `database` and offer what was written to `publisher`."""
        self._settings = settings
        self._database = database
        self._keyring = keyring
        self._publisher = publisher
        self._gauge = QueueGauge(settings.queue_limit)
        self.budget = PromptBudget(settings)

    def submit(self, body: JobRequest, caller: Caller) -> Submission:
        """Return the job, written and offered to the broker, or the one an earlier submission made.

        Raises:
            InvalidInputError: a field is wrong, the model unknown or the prompt too long.
            IdempotencyConflictError: the idempotency key was used with another body.
            QueueFullError: too many jobs are queued.
        """
        # A replay comes first: its deadline may have passed and its model may be gone, and it is still a replay.
        if (known := self._replayed(body, caller)) is not None:
            return Submission(known, created=False)
        new = self._new_job(body, caller)
        with self._database.transaction() as session:
            _refuse_past(session, body.deadline)
            self._gauge.admit(session)
            submission = jobs_repository.submit(session, new)
        if submission.created:
            self._publisher.offer(submission.job.id)
        return submission

    def _replayed(self, body: JobRequest, caller: Caller) -> Job | None:
        if caller.idempotency_key is None:
            return None
        with self._database.transaction() as session:
            known = job_actions.find_submission(session, caller.api_key_id, caller.idempotency_key)
        if known is None:
            return None
        key_id = known.input_digest.partition(b":")[0].decode()
        if not digests_equal(known.input_digest, self._digest(body, key_id)):
            raise IdempotencyConflictError(
                "this Idempotency-Key was used before with a different body: send the same body or a new key",
                field="Idempotency-Key",
            )
        return known

    def _digest(self, body: JobRequest, key_id: str | None = None) -> bytes:
        # Keyed, because a plain digest would confirm a guessed prompt; the key's id stands in front for rotation.
        used, digest = self._keyring.mac(DIGEST_PURPOSE, body.canonical(), key_id)
        return used.encode() + b":" + digest

    def _new_job(self, body: JobRequest, caller: Caller) -> NewJob:
        messages = body.conversation()
        model = self.budget.resolve(body.model)
        sampling = self.budget.fit(model, messages, body.sampling_params())
        job_id = new_id("job")
        figures, texts = _split(sampling)
        content = {"messages": messages} | ({"sampling": texts} if texts else {}) | _privacy(body, caller.policy)
        plain = json.dumps(content, ensure_ascii=False).encode()
        sealed = self._keyring.seal(plain, context=f"job:{job_id}:prompt")
        return NewJob(
            id=job_id,
            api_key_id=caller.api_key_id,
            model=model.name,
            sampling=figures,
            priority=body.priority,
            prompt_ciphertext=sealed.blob,
            prompt_key_id=sealed.key_id,
            prompt_characters=sum(len(message["content"]) for message in messages),
            input_digest=self._digest(body),
            correlation_id=caller.correlation_id,
            max_attempts=self._settings.max_attempts,
            idempotency_key=caller.idempotency_key,
            client_metadata=body.metadata,
            deadline=body.deadline,
            caller_address=caller.address,
        )


def _privacy(body: JobRequest, of_key: Policy) -> JsonObject:
    """Return the policy to keep with the prompt: its lists of what may stay can hold personal data themselves."""
    policy = body.privacy.effective(of_key)
    if policy == DEFAULT and not body.privacy.restore:
        return {}
    return {"privacy": {"policy": policy.model_dump(mode="json"), "restore": body.privacy.restore}}


def _split(sampling: SamplingParams) -> tuple[JsonObject, JsonObject]:
    """Return what may stand in clear, and what is content and goes where the prompt goes."""
    figures = sampling.model_dump(mode="json", exclude=set(SEALED_FIELDS))
    return figures, sampling.model_dump(mode="json", include=set(SEALED_FIELDS), exclude_defaults=True)


def _refuse_past(session: Session, deadline: datetime | None) -> None:
    if deadline is not None and deadline <= session.scalars(select(func.now())).one():
        raise InvalidInputError("deadline lies in the past: send a later one", field="deadline")
