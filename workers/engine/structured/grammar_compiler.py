"""Compiles grammars once, away from the engine's thread."""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

import llguidance

from shared.errors import InvalidInputError
from shared.grammars import Grammar, grammar_of, limits
from shared.sampling import SamplingParams
from workers.engine.structured.closing import Closer, closer_of
from workers.engine.structured.constraint import Constraint
from workers.engine.structured.vocabulary import Vocabulary

MAX_COMPILED = 32
FIRST_STEPS = 2


@dataclass(frozen=True, slots=True)
class _Compiled:
    grammar: Grammar
    matcher: llguidance.LLMatcher
    closer: Closer


class GrammarCompiler:
    """Makes constraints for one vocabulary and keeps the grammars used last. Thread safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Start empty."""
        self._vocabulary = vocabulary
        self._compiled: OrderedDict[bytes, _Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def constraint(self, params: SamplingParams) -> Constraint | None:
        """Return a fresh constraint for one output, None when `params` ask for free text. Takes a second at most.

        Raises:
            InvalidInputError: the grammar is invalid, too large, or its outputs are longer than `max_tokens`.
        """
        grammar = grammar_of(params)
        if grammar is None:
            return None
        compiled = self._of(grammar)
        shortest = compiled.closer.shortest
        if shortest is not None and shortest > params.max_tokens:
            raise InvalidInputError(
                f"an output as sampling.{grammar.field} asks for takes about {shortest} tokens at least:"
                " raise sampling.max_tokens",
                field="sampling.max_tokens",
            )
        return Constraint(grammar, compiled.matcher.deep_copy(), compiled.closer)

    def _of(self, grammar: Grammar) -> _Compiled:
        # Two threads may compile the same grammar at once; the second result replaces the first, and both are right.
        digest = hashlib.sha256(f"{grammar.field}:{grammar.text}".encode()).digest()
        with self._lock:
            known = self._compiled.get(digest)
        compiled = known or self._compile(grammar)
        with self._lock:
            self._compiled[digest] = compiled
            self._compiled.move_to_end(digest)
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        return compiled

    def _compile(self, grammar: Grammar) -> _Compiled:
        matcher = llguidance.LLMatcher(self._vocabulary.tokens, grammar.text, log_level=0, limits=limits())
        grammar.check_matcher(matcher)
        closer = closer_of(matcher, self._vocabulary, detours=grammar.field == "regex")
        _try(Constraint(grammar, matcher.deep_copy(), closer))
        return _Compiled(grammar, matcher, closer)


def _try(constraint: Constraint) -> None:
    """Take the first steps, the dearest ones: what cannot afford them is refused here, not in the engine's thread."""
    for _ in range(FIRST_STEPS):
        if constraint.complete:
            return
        constraint.commit(int(constraint.allowed()[0]))
