"""The scrubber: finds personal data, puts placeholders in its place, and fails closed."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared.errors import PrivacyBlockedError, ScrubFailedError
from shared.privacy.fold import View
from shared.privacy.json_text import Strings, Unescaped, looks_like_json, parses
from shared.privacy.placeholders import Ledger, placeholder_spans
from shared.privacy.policy import DEFAULT, Action, Policy
from shared.privacy.recognizers import BUILT_IN, Finder
from shared.privacy.recognizers.custom import custom_recognizers
from shared.privacy.recognizers.prefilter import Prefilter
from shared.privacy.replacement import Digest, Replacer, check_blocked
from shared.privacy.span import Span, union
from shared.settings import Settings

_Result = TypeVar("_Result")

MAX_ROUNDS = 8
"""Replacing a value can bare one that it touched; a text that needs more rounds than this is refused."""
MAX_SECONDS = 60.0


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

    def __init__(self, recognizers: Sequence[Finder] = BUILT_IN, *, max_seconds: float = MAX_SECONDS) -> None:
        """Take the recognizers to run, the built-in ones unless told otherwise; names are looked for by policy."""
        self._prefilter, self._max_seconds = Prefilter(recognizers), max_seconds

    @classmethod
    def configured(cls, settings: Settings) -> "Scrubber":
        """Return one with the built-in recognizers and those of the settings' file.

        Raises:
            ConfigurationError: that file is wrong; names what.
        """
        return cls((*BUILT_IN, *custom_recognizers(settings.privacy_recognizers)))

    def scrub(
        self,
        text: str,
        *,
        policy: Policy = DEFAULT,
        mapping: Mapping[str, str] | None = None,
        digest: Digest | None = None,
    ) -> ScrubResult:
        """Replace the personal data in `text`; text outside matches stays as it is, and JSON stays JSON.

        Args:
            text: any Unicode text.
            policy: what happens to each entity.
            mapping: of an earlier scrub of the same job; known values get their known placeholders.
            digest: what `Action.HASH` hashes with; without it values are replaced.

        Raises:
            PrivacyBlockedError: the policy blocks a type of data that is there.
            ScrubFailedError: something went wrong; the text must not be used.
        """
        return _closed(lambda: self._scrub([text], Replacer(policy, Ledger(mapping), digest))[1])

    def scrub_messages(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        policy: Policy = DEFAULT,
        mapping: Mapping[str, str] | None = None,
        digest: Digest | None = None,
    ) -> tuple[list[dict[str, str]], ScrubResult]:
        """Scrub the `content` of chat messages with one mapping; the same value is the same placeholder in all.

        Returns:
            The messages with scrubbed content, and a result whose `text` joins the contents with line feeds and whose
            `spans` are empty, because offsets into several texts would mislead.

        Raises:
            PrivacyBlockedError: the policy blocks a type of data that is there.
            ScrubFailedError: something went wrong; the messages must not be used.
        """

        def scrub() -> tuple[list[dict[str, str]], ScrubResult]:
            replacer = Replacer(policy, Ledger(mapping), digest)
            contents, result = self._scrub([message["content"] for message in messages], replacer)
            return [
                {**message, "content": content} for message, content in zip(messages, contents, strict=True)
            ], result

        return _closed(scrub)

    def detect(self, text: str, *, policy: Policy = DEFAULT) -> list[Span]:
        """Return disjoint spans of what `policy` does not keep, in code points of `text`, ascending."""
        if "\\" in text and looks_like_json(text):
            plain = Unescaped.of(text)
            found = self._detect(plain.text, policy)
            return [Span(*plain.original_span(span.start, span.end), span.entity) for span in found]
        return self._detect(text, policy)

    def _detect(self, text: str, policy: Policy) -> list[Span]:
        until = time.monotonic() + self._max_seconds
        walls, found = list(placeholder_spans(text)), list[Span]()
        for _ in range(MAX_ROUNDS):
            fresh = list(self._detect_once(View(text, walls), policy, until))
            if not fresh:
                return sorted(found)
            walls += [(span.start, span.end) for span in fresh]
            found += [span for span in fresh if not policy.allows(text[span.start : span.end])]
        raise ScrubFailedError(f"The text still held personal data after {MAX_ROUNDS} rounds; split it up")

    def _detect_once(self, view: View, policy: Policy, until: float) -> Iterator[Span]:
        matches: list[Span] = []
        for finder in self._finders(view, policy):
            if policy.action(finder.entity) is not Action.KEEP:
                matches += [Span(found.start, found.end, finder.entity) for found in finder.find(view)]
            if time.monotonic() > until:
                raise ScrubFailedError(f"Scrubbing took longer than {self._max_seconds:.0f} seconds; split the text up")
        return (Span(*view.original_span(span.start, span.end), span.entity) for span in union(matches))

    def _finders(self, view: View, policy: Policy) -> Iterator[Finder]:
        yield from self._prefilter.choose(view)
        if policy.names:
            from shared.privacy.names import NAMES  # noqa: PLC0415  # lists and a model that only this tier loads

            yield from NAMES

    def _scrub(self, texts: Sequence[str], replacer: Replacer) -> tuple[list[str], ScrubResult]:
        started = time.perf_counter()
        for text in texts:
            replacer.ledger.reserve(text)
        spans = [self.detect(text, policy=replacer.policy) for text in texts]
        every = [span for found in spans for span in found]
        check_blocked(replacer.policy, every)
        scrubbed = [self._replaced(text, found, replacer) for text, found in zip(texts, spans, strict=True)]
        entities = Counter(span.entity for span in every)
        elapsed = round((time.perf_counter() - started) * 1000, 3)
        receipt = {"entities": dict(sorted(entities.items())), "policy": replacer.policy.label, "ms": elapsed}
        visible = tuple(spans[0]) if len(texts) == 1 else ()
        return scrubbed, ScrubResult("\n".join(scrubbed), receipt, replacer.ledger.mapping, visible)

    def _replaced(self, text: str, spans: Sequence[Span], replacer: Replacer) -> str:
        if not spans or not looks_like_json(text):
            return replacer.apply(text, spans)
        replaced = replacer.apply(text, spans, Strings(text))
        if looks_like_json(replaced) or not parses(text):
            return replaced
        return json.dumps(self._walked(json.loads(text), replacer), ensure_ascii=False)

    def _walked(self, value: Any, replacer: Replacer) -> Any:  # noqa: ANN401  # any JSON
        """Scrub decoded keys and leaves one by one, where a value reaches across the borders of a leaf."""
        if isinstance(value, dict):
            return {self._walked(key, replacer): self._walked(item, replacer) for key, item in value.items()}
        if isinstance(value, list):
            return [self._walked(item, replacer) for item in value]
        if isinstance(value, bool) or value is None:
            return value
        text = value if isinstance(value, str) else json.dumps(value)
        spans = self._detect(text, replacer.policy)
        return replacer.apply(text, spans) if spans else value


def _closed(action: Callable[[], _Result]) -> _Result:
    """Run `action`; whatever goes wrong becomes one error that quotes nothing and drags no traceback along."""
    try:
        return action()
    except (ScrubFailedError, PrivacyBlockedError):
        raise
    except Exception as error:  # noqa: BLE001  # fails closed: no kind of fault may let text through
        kind = type(error).__name__
    raise ScrubFailedError(f"Scrubbing failed ({kind}); the job was closed and nothing was generated from it")
