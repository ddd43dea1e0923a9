"""Which recognizers can find anything in a text: all their patterns matched at once, in one pass over it."""

from collections.abc import Iterator, Sequence
from typing import Any

import re2

from shared.privacy.fold import View
from shared.privacy.recognizers.recognizer import Finder, Recognizer

_MEMORY = 64 << 20  # of the automaton; it forgets states rather than grow beyond that
_ANYTHING = r"(?s)."


class Prefilter:
    """Chooses from `finders`. What has no single pattern is always chosen."""

    def __init__(self, finders: Sequence[Finder]) -> None:
        """Compile the patterns into one automaton."""
        self._finders = tuple(finders)
        options = re2.Options()
        options.log_errors, options.max_mem = False, _MEMORY
        self._set: Any = re2.Set.SearchSet(options)
        self._number: dict[int, int] = {}
        for index, finder in enumerate(self._finders):
            if isinstance(finder, Recognizer):
                self._number[self._set.Add(finder.pattern.pattern)] = index
        # Matches any text: without it, an automaton that gave up would look like one that found nothing.
        self._witness = self._set.Add(_ANYTHING)
        self._set.Compile()
        self._always = frozenset(range(len(self._finders))) - frozenset(self._number.values())

    def choose(self, view: View) -> Iterator[Finder]:
        """Yield, in order, those that may find something in `view`; all of them where that cannot be told."""
        matched = self._set.Match(view.data) or ()
        if self._witness not in matched:
            yield from self._finders
            return
        chosen = self._always | {self._number[number] for number in matched if number in self._number}
        yield from (self._finders[index] for index in sorted(chosen))
