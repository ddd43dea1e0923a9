"""The scrubber: finds personal data, puts placeholders in its place, and fails closed."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared.errors import ScrubFailedError
from shared.privacy.fold import View
from shared.privacy.placeholders import Ledger, placeholder_spans
from shared.privacy.policy import DEFAULT, Action, Policy
from shared.privacy.recognizers import BUILT_IN, Finder
from shared.privacy.span import Span, union

_Result = TypeVar("_Result")

MAX_ROUNDS = 8
"""Replacing a value can bare one that it touched; a text that needs more rounds than this is refused."""


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """Scrubbed text, what may be said about it (`receipt`), and what only its owner may see (`mapping`, `spans`).

    `receipt` is `{"entities": {"PHONE": 2}, "policy": "default@1", "ms": 0.4}` and holds no values, offsets or
    previews. `spans` are offsets into the original text, in code points.
    """

    text: str = field(repr=False)
    receipt: dict[str, Any]
    mapping: dict[str, str] = field(repr=False)
    spans: tuple[Span, ...] = field(repr=False)


class Scrubber:
    """Scrubs with the given recognizers; holds no state between calls, so threads and jobs share one."""

    def __init__(self, recognizers: Sequence[Finder] = BUILT_IN) -> None:
        """Take the recognizers to run, the built-in ones unless told otherwise."""
        self._recognizers = tuple(recognizers)

    def scrub(self, text: str, *, policy: Policy = DEFAULT, mapping: Mapping[str, str] | None = None) -> ScrubResult:
        """Replace the personal data in `text`; text outside matches stays as it is.

        Args:
            text: any Unicode text.
            policy: what happens to each entity.
            mapping: of an earlier scrub of the same job; known values get their known placeholders.

        Raises:
            ScrubFailedError: something went wrong; the text must not be used.
        """
        return _closed(lambda: self._scrub([text], policy, mapping)[1])

    def scrub_messages(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        policy: Policy = DEFAULT,
        mapping: Mapping[str, str] | None = None,
    ) -> tuple[list[dict[str, str]], ScrubResult]:
        """Scrub the `content` of chat messages with one mapping; the same value is the same placeholder in all.

        Returns:
            The messages with scrubbed content, and a result whose `text` joins the contents with line feeds and whose
            `spans` are empty, because offsets into several texts would mislead.

        Raises:
            ScrubFailedError: something went wrong; the messages must not be used.
        """
        return _closed(lambda: self._scrub_messages(messages, policy, mapping))

    def detect(self, text: str, *, policy: Policy = DEFAULT) -> list[Span]:
        """Return disjoint spans of what `policy` does not keep, in code points of `text`, ascending."""
        found: list[Span] = []
        literal = list(placeholder_spans(text))
        for _ in range(MAX_ROUNDS):
            walls = [*literal, *((span.start, span.end) for span in found)]
            fresh = self._detect_once(View(text, walls), policy)
            if not fresh:
                return sorted(found)
            found += fresh
        raise ScrubFailedError(f"The text still held personal data after {MAX_ROUNDS} rounds; split it up")

    def _detect_once(self, view: View, policy: Policy) -> list[Span]:
        matches = (
            Span(found.start, found.end, recognizer.entity)
            for recognizer in self._recognizers
            if policy.action(recognizer.entity) is not Action.KEEP
            for found in recognizer.find(view)
        )
        return [Span(*view.original_span(span.start, span.end), span.entity) for span in union(matches)]

    def _scrub(
        self, texts: Sequence[str], policy: Policy, mapping: Mapping[str, str] | None
    ) -> tuple[list[str], ScrubResult]:
        started = time.perf_counter()
        ledger = Ledger(mapping)
        for text in texts:
            ledger.reserve(text)
        spans = [self.detect(text, policy=policy) for text in texts]
        scrubbed = [_replaced(text, found, ledger) for text, found in zip(texts, spans, strict=True)]
        entities = Counter(span.entity for found in spans for span in found)
        elapsed = round((time.perf_counter() - started) * 1000, 3)
        receipt = {"entities": dict(sorted(entities.items())), "policy": policy.label, "ms": elapsed}
        visible = tuple(spans[0]) if len(texts) == 1 else ()
        return scrubbed, ScrubResult("\n".join(scrubbed), receipt, ledger.mapping, visible)

    def _scrub_messages(
        self, messages: Sequence[Mapping[str, str]], policy: Policy, mapping: Mapping[str, str] | None
    ) -> tuple[list[dict[str, str]], ScrubResult]:
        contents, result = self._scrub([message["content"] for message in messages], policy, mapping)
        scrubbed = [{**message, "content": content} for message, content in zip(messages, contents, strict=True)]
        return scrubbed, result


def _replaced(text: str, spans: Iterable[Span], ledger: Ledger) -> str:
    pieces, position = [], 0
    for span in spans:
        pieces += [text[position : span.start], ledger.placeholder(span.entity, text[span.start : span.end])]
        position = span.end
    return "".join([*pieces, text[position:]])


def _closed(action: Callable[[], _Result]) -> _Result:
    """Run `action`; whatever goes wrong becomes one error that quotes nothing and drags no traceback along."""
    try:
        return action()
    except ScrubFailedError:
        raise
    except Exception as error:  # noqa: BLE001  # fails closed: no kind of fault may let text through
        kind = type(error).__name__
    raise ScrubFailedError(f"Scrubbing failed ({kind}); the job was closed and nothing was generated from it")
