"""What a job says: opened, scrubbed and encoded on the way in, scrubbed and sealed on the way out.

Content stays in this module and the engine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared.crypto import KeyRing, Sealed
from shared.errors import DecryptionError
from shared.models import Job, JsonObject
from shared.privacy import Scrubber

Message = Mapping[str, str]


class Tokenizer(Protocol):
    """Renders and encodes conversations."""

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt's token ids."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the engine takes it: no personal data in it. `mapping` is what the scrubber took out."""

    token_ids: Sequence[int] = field(repr=False)
    receipt: JsonObject
    mapping: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SealedOutput:
    """An output as it is stored, and the receipt of both passes of the scrubber."""

    sealed: Sealed
    receipt: JsonObject


class JobContent:
    """Opens prompts and seals outputs. Thread safe."""

    def __init__(self, keyring: KeyRing, scrubber: Scrubber, tokenizer: Tokenizer) -> None:
        """Use these three; all are shared by the worker's threads."""
        self._keyring = keyring
        self._scrubber = scrubber
        self._tokenizer = tokenizer

    def prompt(self, job: Job) -> Prompt:
        """Return the scrubbed and encoded prompt of `job`.

        Raises:
            DecryptionError: the prompt was erased, or no key opens it.
            ScrubFailedError: scrubbing failed; nothing may be generated.
            InvalidInputError: the chat template refuses the messages.
        """
        messages, result = self._scrubber.scrub_messages(self._open(job))
        return Prompt(self._tokenizer.encode_chat(messages), result.receipt, result.mapping)

    def _open(self, job: Job) -> Sequence[Message]:
        if job.prompt_ciphertext is None or job.prompt_key_id is None:
            raise DecryptionError("the prompt was erased; submit the job again")
        sealed = Sealed(job.prompt_key_id, job.prompt_ciphertext)
        messages: Sequence[Message] = json.loads(self._keyring.open(sealed, context=f"job:{job.id}:prompt"))["messages"]
        return messages

    def seal_output(self, job: Job, prompt: Prompt, text: str) -> SealedOutput:
        """Scrub and encrypt the output of `job`: a model can invent or echo personal data.

        Raises:
            ScrubFailedError: scrubbing failed; the output may not be stored.
        """
        result = self._scrubber.scrub(text, mapping=prompt.mapping)
        sealed = self._keyring.seal(json.dumps({"text": result.text}).encode(), context=f"job:{job.id}:output")
        return SealedOutput(sealed, prompt.receipt | {"output_entities": result.receipt["entities"]})
