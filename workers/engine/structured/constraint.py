"""The grammar of one output: which tokens may come next, and when it is complete."""

import llguidance
import numpy as np
from numpy.typing import NDArray

from shared.grammars import Grammar
from workers.engine.structured.closing import Closer, completes

TokenIds = NDArray[np.int64]
WATCHED_TOKENS = 64


class Constraint:
    """State of one constrained output; belongs to one sequence, and to the engine's thread once that runs.

    Near the end of its budget every token is checked to leave room for a valid end; one that does not gives way to the
    first token of a way that does.
    """

    def __init__(self, grammar: Grammar, matcher: llguidance.LLMatcher, closer: Closer) -> None:
        """Take a fresh `matcher` of `grammar`, and what ends its outputs."""
        self._grammar, self._matcher, self._closer = grammar, matcher, closer
        self._vocab_size = closer.vocabulary.vocab_size
        self._mask: NDArray[np.int32] = np.zeros((self._vocab_size + 31) // 32, np.int32)
        self._watch_below = 0 if closer.shortest is None else 2 * closer.shortest + WATCHED_TOKENS
        self._path: list[int] | None = None

    @property
    def complete(self) -> bool:
        """Whether the output is valid and nothing can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self) -> TokenIds:
        """Return the tokens that may come next, ascending; never a special token but one that ends the output.

        Raises:
            InvalidInputError: the grammar turned out too complex.
        """
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._grammar.check_matcher(self._matcher)
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little", count=self._vocab_size)
        return np.flatnonzero(bits.view(np.bool_))

    def settle(self, token_id: int, remaining: int) -> int:
        """Return `token_id`, or what must come instead for the output to end within `remaining` tokens."""
        if remaining > self._watch_below:
            return token_id
        state = self._matcher.deep_copy()
        after = self._path_after(state, remaining - 1) if state.consume_token(token_id) else None
        if after is None:
            token_id, *after = self._path or self._closer.path(self._matcher, remaining) or [token_id]
        self._path = after
        return token_id

    def _path_after(self, state: llguidance.LLMatcher, limit: int) -> list[int] | None:
        # What ended the output before this token often still does: inside a string, say.
        if self._path and len(self._path) <= limit and completes(state, self._path):
            return self._path
        return self._closer.path(state, limit)

    def commit(self, token_id: int) -> None:
        """Append a token that `allowed` or `settle` gave.

        Raises:
            InvalidInputError: the grammar turned out too complex.
        """
        self._matcher.consume_token(token_id)
        self._grammar.check_matcher(self._matcher)
