"""What a job says: opened, scrubbed and encoded on the way in, scrubbed and sealed on the way out.

Content stays in this module and the engine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shared.crypto import KeyRing, Sealed
from shared.errors import DecryptionError
from shared.models import Job, JsonObject
from shared.privacy import DEFAULT, Policy, Scrubber
from shared.privacy.replacement import digest_for
from shared.sampling import SamplingParams
from workers.engine.sequence import GenerationOutput
from workers.job_output import OutputScrubber, TokenTexts, stored_choice

Message = Mapping[str, str]
_SCRUBBED = "scrubbed"


class Tokenizer(Protocol):
    """Renders and encodes conversations."""

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt's token ids."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the engine takes it: no personal data in it. `mapping` is what the scrubber took out."""

    token_ids: Sequence[int] = field(repr=False)
    params: SamplingParams = field(repr=False)
    receipt: JsonObject
    mapping: Mapping[str, str] = field(repr=False)
    policy: Policy = field(default=DEFAULT, repr=False)
    restore: bool = False
    scrubbed: Sealed | None = None
    """What shall take the place of the prompt as it was sent; None where nothing was taken out."""


@dataclass(frozen=True, slots=True)
class SealedOutput:
    """An output as it is stored, and the receipt of both passes of the scrubber."""

    sealed: Sealed
    receipt: JsonObject


class JobContent:
    """Opens prompts and seals outputs. Thread safe."""

    def __init__(
        self, keyring: KeyRing, scrubber: Scrubber, tokenizer: Tokenizer, tokens: TokenTexts | None = None
    ) -> None:
        """Use these, shared by the worker's threads; `tokens` spells log probabilities."""
        self._keyring = keyring
        self._scrubber = scrubber
        self._tokenizer = tokenizer
        self._tokens = tokens

    def prompt(self, job: Job) -> Prompt:
        """Return the scrubbed and encoded prompt of `job`.

        Raises:
            DecryptionError: the prompt was erased, or no key opens it.
            PrivacyBlockedError: the policy of the job blocks what it holds; nothing may be generated.
            ScrubFailedError: scrubbing failed; nothing may be generated.
            InvalidInputError: the chat template refuses the messages.
        """
        content = self._open(job)
        if _SCRUBBED in content:
            return self._again(job, content)
        privacy = content.get("privacy", {})
        policy = Policy.model_validate(privacy["policy"]) if privacy else DEFAULT
        digest = digest_for(self._keyring, job.api_key_id)
        messages, result = self._scrubber.scrub_messages(content["messages"], policy=policy, digest=digest)
        # What of the parameters is text was sealed with the prompt; rows of older versions have it all in clear.
        params = SamplingParams.model_validate(job.sampling | content.get("sampling", {}))
        restore = bool(privacy.get("restore"))
        kept = {"receipt": result.receipt, "mapping": result.mapping if restore else {}}
        changed = bool(result.receipt["entities"])
        return Prompt(
            token_ids=self._tokenizer.encode_chat(messages),
            params=params,
            receipt=result.receipt,
            mapping=result.mapping,
            policy=policy,
            restore=restore,
            scrubbed=self._seal(job, {**content, "messages": messages, _SCRUBBED: kept}, "prompt") if changed else None,
        )

    def _again(self, job: Job, content: Mapping[str, Any]) -> Prompt:
        """Return the prompt an earlier attempt scrubbed."""
        privacy, kept = content.get("privacy", {}), content[_SCRUBBED]
        return Prompt(
            token_ids=self._tokenizer.encode_chat(content["messages"]),
            params=SamplingParams.model_validate(job.sampling | content.get("sampling", {})),
            receipt=kept["receipt"],
            mapping=kept["mapping"],
            policy=Policy.model_validate(privacy["policy"]) if privacy else DEFAULT,
            restore=bool(privacy.get("restore")),
        )

    def _seal(self, job: Job, content: Mapping[str, Any], what: str) -> Sealed:
        return self._keyring.seal(json.dumps(content).encode(), context=f"job:{job.id}:{what}")

    def _open(self, job: Job) -> Mapping[str, Any]:
        if job.prompt_ciphertext is None or job.prompt_key_id is None:
            raise DecryptionError("the prompt was erased; submit the job again")
        sealed = Sealed(job.prompt_key_id, job.prompt_ciphertext)
        content: Mapping[str, Any] = json.loads(self._keyring.open(sealed, context=f"job:{job.id}:prompt"))
        return content

    def seal_output(self, job: Job, prompt: Prompt, output: GenerationOutput) -> SealedOutput:
        """Scrub and encrypt the outputs of `job`: a model can invent or echo personal data.

        Where the owner asked for it, values of the prompt are put back; invented ones never are.

        Raises:
            PrivacyBlockedError: the policy of the job blocks what an output holds; it may not be stored.
            ScrubFailedError: scrubbing failed; the output may not be stored.
        """
        digest = digest_for(self._keyring, job.api_key_id)
        scrubber = OutputScrubber(self._scrubber, prompt.mapping, policy=prompt.policy, digest=digest)
        if prompt.restore:
            scrubber.restorable = prompt.mapping
        choices = [stored_choice(choice, scrubber, self._tokens) for choice in (output, *output.alternatives)]
        content: JsonObject = choices[0] | ({"choices": choices[1:]} if output.alternatives else {})
        sealed = self._seal(job, content, "output")
        receipt = prompt.receipt | {"output_entities": scrubber.entities}
        return SealedOutput(sealed, receipt | ({"unresolved": scrubber.unresolved} if prompt.restore else {}))
