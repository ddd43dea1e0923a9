"""Outputs as they are stored and shown: texts, finish reasons, and log probabilities in OpenAI's shape."""

from collections.abc import Mapping
from typing import Any, Protocol

from shared.privacy import DEFAULT, Policy, Scrubber, restore
from shared.privacy.replacement import Digest
from workers.engine.logprobs import TokenLogprob
from workers.engine.sequence import GenerationOutput


class TokenTexts(Protocol):
    """Knows what tokens stand for."""

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes of a token; they may end inside a character."""
        ...


class OutputScrubber:
    """Scrubs the outputs of one job with one mapping: the same value is the same placeholder in all."""

    def __init__(
        self,
        scrubber: Scrubber,
        mapping: Mapping[str, str],
        *,
        policy: Policy = DEFAULT,
        digest: Digest | None = None,
    ) -> None:
        """Continue from the `mapping` of the prompt, under the same `policy`."""
        self._scrubber, self._mapping, self._policy, self._digest = scrubber, mapping, policy, digest
        self.entities: dict[str, int] = {}
        self.restorable: Mapping[str, str] = {}
        """What may be put back into outputs."""
        self.unresolved = 0
        """Placeholders in outputs that stand for nothing."""

    def scrub(self, text: str) -> str:
        """Return `text` without personal data, except what is `restorable`; what was JSON stays JSON.

        Raises:
            PrivacyBlockedError: the policy blocks what `text` holds.
            ScrubFailedError: scrubbing failed; the text may not be stored.
        """
        result = self._scrubber.scrub(text, policy=self._policy, mapping=self._mapping, digest=self._digest)
        self._mapping = result.mapping
        for entity, count in result.receipt["entities"].items():
            self.entities[entity] = self.entities.get(entity, 0) + count
        if not self.restorable:
            return result.text
        restored, unresolved = restore(result.text, self.restorable)
        self.unresolved += unresolved
        return restored


def stored_choice(output: GenerationOutput, scrubber: OutputScrubber, tokens: TokenTexts | None) -> dict[str, Any]:
    """Return one output as JSON: its scrubbed text, and log probabilities unless they would tell what was scrubbed."""
    text = scrubber.scrub(output.text)
    told = None
    if output.logprobs is not None and tokens is not None and text == output.text:
        told = {"content": [_entry(tokens, logprob) for logprob in output.logprobs]}
    return {"text": text, "finish_reason": output.finish_reason, "logprobs": told}


def _entry(tokens: TokenTexts, logprob: TokenLogprob) -> dict[str, Any]:
    top = [_token(tokens, token_id, value) for token_id, value in logprob.top]
    return _token(tokens, logprob.token_id, logprob.logprob) | {"top_logprobs": top}


def _token(tokens: TokenTexts, token_id: int, logprob: float) -> dict[str, Any]:
    content = tokens.bytes_of(token_id)
    return {"token": content.decode("utf-8", errors="replace"), "logprob": logprob, "bytes": list(content)}
