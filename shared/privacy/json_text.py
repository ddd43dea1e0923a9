"""JSON as text: what its escapes hide from a recognizer, and numbers that a placeholder takes the place of."""

import bisect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}(?:\\u[dD][c-fC-F][0-9A-Fa-f]{2})?)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BARE = "-+.0123456789eE"


def parses(text: str) -> bool:
    """Whether `text` is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def looks_like_json(text: str) -> bool:
    """Whether `text` is a JSON object or array, or lines of them."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return False
    return parses(stripped) or all(parses(line) for line in stripped.splitlines() if line.strip())


class Strings:
    """Where the strings of a JSON text stand."""

    def __init__(self, text: str) -> None:
        """Index the strings of `text`."""
        self._text = text
        spans = [match.span() for match in _STRING.finditer(text)]
        self._starts, self._ends = [start for start, _ in spans], [end for _, end in spans]

    def bare(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the whole number that the span lies in; None where it touches a string."""
        index = bisect.bisect_right(self._starts, start) - 1
        if index >= 0 and self._ends[index] > start:
            return None
        while start and self._text[start - 1] in _BARE:
            start -= 1
        while end < len(self._text) and self._text[end] in _BARE:
            end += 1
        return start, end


@dataclass(frozen=True, slots=True)
class Unescaped:
    """JSON text with its escapes resolved, and the way back to the original offsets."""

    text: str
    starts: Sequence[int]
    """Offsets in `text` from which a shift holds, ascending."""
    shifts: Sequence[int]

    @classmethod
    def of(cls, text: str) -> "Unescaped":
        """Resolve the escapes of `text`; anything else stays, character by character."""
        pieces, starts, shifts, position, size = [], [0], [0], 0, 0
        for match in _ESCAPE.finditer(text):
            plain = json.loads(f'"{match[0]}"')
            before = match.start() - position
            pieces += [text[position : match.start()], plain]
            size += before + len(plain)
            position = match.end()
            starts.append(size)
            shifts.append(position - size)
        return cls("".join([*pieces, text[position:]]), starts, shifts)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Map a span to offsets in the original; an escape is covered whole."""
        return self._original(start), self._original(end - 1, end=True)

    def _original(self, offset: int, *, end: bool = False) -> int:
        if not end:
            return offset + self.shifts[bisect.bisect_right(self.starts, offset) - 1]
        # The original end of a character is where the next one begins.
        following = bisect.bisect_right(self.starts, offset + 1) - 1
        return offset + 1 + self.shifts[following]
