"""A short way from the middle of an output to a valid end, so that a tight `max_tokens` still parses.

A heuristic: it closes what is open, writes what is forced, and fills in what is asked for with the plainest bytes. What
it finds does end; when it finds nothing, a way may still exist.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import llguidance

from workers.engine.structured.vocabulary import Vocabulary

LONGEST = 4096
LONGEST_DETOUR = 64
SEARCH_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Closer:
    """Finds ways to the end. `preferred` is a token to take wherever it may stand: `(ab)*c` ends if `c` is.

    `shortest` is the length of the shortest output found, None if none was: then nothing is ever found.
    """

    vocabulary: Vocabulary
    preferred: int | None = None
    shortest: int | None = None

    def path(self, matcher: llguidance.LLMatcher, limit: int, until: float = math.inf) -> list[int] | None:
        """Return at most `limit` tokens that complete the output of `matcher`, which stays as it is.

        Gives up at the `time.monotonic()` of `until`.
        """
        if self.shortest is None:
            return None
        state, path = matcher.deep_copy(), list[int]()
        while not state.is_accepting():
            step = self._forced(state) or self._first_allowed(state)
            late = len(path) + len(step) > limit or time.monotonic() > until
            if late or not step or not state.consume_tokens(step):
                return None
            path += step
        return path

    def _forced(self, state: llguidance.LLMatcher) -> list[int]:
        """Return the tokens of the bytes no output can do without, such as the name of a required property."""
        text = state.compute_ff_bytes()
        tokens = self.vocabulary.tokens.tokenize_bytes(text) if len(text) > 1 else []
        return tokens[: state.validate_tokens(tokens)] if tokens else []

    def _first_allowed(self, state: llguidance.LLMatcher) -> list[int]:
        return next(([token] for token in self._candidates(state) if _allows(state, token)), [])

    def _candidates(self, state: llguidance.LLMatcher) -> Iterator[int]:
        if self.preferred is not None:
            yield self.preferred
        # Where a quote and a plain letter are both allowed, the quote ends a string; elsewhere it would begin one.
        quote, letter = self.vocabulary.quote, self.vocabulary.letter
        if quote is not None and letter is not None and _allows(state, quote) and _allows(state, letter):
            yield quote
        yield from self.vocabulary.closers


def closer_of(matcher: llguidance.LLMatcher, vocabulary: Vocabulary, *, detours: bool) -> Closer:
    """Return what ends the outputs of a fresh `matcher` soonest, of what half a second finds.

    JSON closes itself; with `detours`, every byte is tried as the preferred one.
    """
    until = time.monotonic() + SEARCH_SECONDS
    best = _measured(Closer(vocabulary, shortest=0), matcher, LONGEST, until)
    for token in vocabulary.closers if detours else ():
        limit = min(LONGEST_DETOUR, (best.shortest or LONGEST) - 1)
        found = _measured(Closer(vocabulary, token, shortest=0), matcher, limit, until)
        best = best if found.shortest is None else found
    return best


def _measured(closer: Closer, matcher: llguidance.LLMatcher, limit: int, until: float) -> Closer:
    path = closer.path(matcher, limit, until)
    return replace(closer, shortest=None if path is None else len(path))


def completes(state: llguidance.LLMatcher, path: list[int]) -> bool:
    """Whether `path` completes the output of `state`, which stays as it is."""
    if state.validate_tokens(path) < len(path):
        return False
    after = state.deep_copy()
    return after.consume_tokens(path) and after.is_accepting()


def _allows(state: llguidance.LLMatcher, token: int) -> bool:
    return state.validate_tokens([token]) == 1
