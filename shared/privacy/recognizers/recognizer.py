"""What a recognizer is: RE2 patterns whose first group is the value, and a check in code for what RE2 cannot say."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import re2

from shared.privacy.fold import View
from shared.privacy.words import Words, one_of

# RE2 has no look-around. Borders are consumed outside group 1 and the search resumes at the end of that group, so one
# character can close a value and open the next. `\b` and its kin fail between Chinese and digits.
LEFT = r"(?:^|[^0-9A-Za-z_])"
RIGHT = r"(?:[^0-9A-Za-z_]|$)"
LEFT_OF_DIGITS = r"(?:^|[^0-9_]|%[0-9A-Fa-f]{2})"
RIGHT_OF_DIGITS = r"(?:[^0-9_]|$)"

_GAP = r"(?:[ -]|\r?\n)"
_TOKEN = re.compile(rb"[0-9A-Za-z_]*")
_LETTERS_BEFORE = re.compile(r"[a-z]+\Z")
_ESCAPE_BEFORE = re.compile(r"(?:\\[nrt]|%[0-9a-f]{2})\Z")
_LABELS = one_of(
    "tel telephone phone mobile mob cell fax call sms contact no num number id idcard card cardno pan acct account "
    "ssn ip ipv v at or and to from is user"
)
_LETTERS_AFTER = frozenset({"ext", "x", "and", "or", "com", "cn", "net", "is", "tel"})


def grouped(char: str, last: str, *groupings: str) -> str:
    """Return a pattern for printed groups: `"6-8-4"` is six, eight and four times `char`, where the last is `last`.

    Naming the groupings, rather than allowing a gap anywhere, keeps columns of figures from joining.
    """
    return "|".join(_grouping(char, last, [int(size) for size in sizes.split("-")]) for sizes in groupings)


def _grouping(char: str, last: str, sizes: list[int]) -> str:
    sizes = [*sizes[:-1], sizes[-1] - 1]
    return _GAP.join(f"{char}{{{size}}}" if size else "" for size in sizes) + last


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stretch of the view, in bytes, that a pattern matched."""

    view: View
    start: int
    end: int

    @property
    def text(self) -> str:
        """The folded characters."""
        return self.view.text(self.start, self.end)

    @property
    def alphanumerics(self) -> str:
        """The value without blanks and punctuation, upper case."""
        return "".join(filter(str.isalnum, self.text)).upper()

    def before(self, length: int) -> str:
        """Up to `length` lower-case characters in front."""
        return self.view.before(self.start, length)

    def after(self, length: int) -> str:
        """Up to `length` lower-case characters behind."""
        return self.view.after(self.end, length)

    def near(self, words: Words, *, before: int, after: int = 0) -> bool:
        """Tell whether one of `words` stands within so many characters."""
        return bool(words.search(self.before(before)) or (after and words.search(self.after(after))))

    @property
    def heading(self) -> str:
        """What heads the column of a table that the candidate stands in, lower case; empty outside tables."""
        return self.view.table.heading(self.start)

    def first(self, length: int) -> "Candidate":
        """Narrow to the first `length` bytes."""
        return replace(self, end=self.start + length)

    def without(self, first: int, last: int) -> "Candidate":
        """Narrow by so many bytes at either end."""
        return replace(self, start=self.start + first, end=self.end - last)

    @property
    def borders_are_clear(self) -> bool:
        """Letters may touch digits only where the width changes, after an escape, or as a label (`tel138...`)."""
        return self._left_is_clear and self._right_is_clear

    @property
    def _left_is_clear(self) -> bool:
        letters = _LETTERS_BEFORE.search(before := self.before(12))
        if not letters or letters[0] in _LABELS or self.view.width_changes(self.start):
            return True
        return bool(_ESCAPE_BEFORE.search(before))

    @property
    def _right_is_clear(self) -> bool:
        after = self.after(5)
        letters = re.match(r"[a-z]+", after)
        return not letters or letters[0] in _LETTERS_AFTER or self.view.width_changes(self.end)


Check = Callable[[Candidate], Candidate | None]


class Finder(Protocol):
    """Whatever finds values of one entity: recognizers by pattern, and the tier of names."""

    @property
    def entity(self) -> str:
        """What it finds."""
        ...

    def find(self, view: View) -> Iterator[Candidate]:
        """Yield values in order."""
        ...


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Finds values of one entity. `needs` are bytes of which one must occur in the view for the search to start."""

    entity: str
    pattern: Any
    check: Check
    needs: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, entity: str, pattern: str, check: Check, *, needs: tuple[str, ...] = ()) -> "Recognizer":
        """Compile `pattern`; a construct that needs backtracking is refused by RE2 here."""
        options = re2.Options()
        options.log_errors = False  # RE2 would write the pattern to stderr
        return cls(entity, re2.compile(pattern, options), check, tuple(word.encode() for word in needs))

    def find(self, view: View) -> Iterator[Candidate]:
        """Yield accepted values in order. A refused one hides nothing behind its first word."""
        if self.needs and not any(word in view.data for word in self.needs):
            return
        position = 0
        while match := self.pattern.search(view.data, position):
            start, end = match.span(1)
            found = self.check(Candidate(view, start, end))
            if found:
                yield found
            position = found.end if found else _next_token(view.data, start)


def _next_token(data: bytes, start: int) -> int:
    match = _TOKEN.match(data, start)
    return max(match.end() if match else 0, start + 1)
