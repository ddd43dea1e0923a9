"""The folded view of a text: what recognizers match on, with a map back to the original characters.

Full-width forms become ASCII, every decimal digit becomes 0-9, odd blanks and hyphens become plain ones, and characters
that print nothing are dropped. The original is never rewritten from the view; only offsets travel back.
"""

import bisect
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property

import re2

from shared.privacy.table import Table

WALL = "\x1f"
"""Fills what must neither be matched nor looked through: placeholders and values that are already replaced."""

# Wide , ; ! ? end a value wherever they stand; as ASCII they would join what follows to a URL or a password.
_KEPT_WIDE = "\uff0c\uff1b\uff01\uff1f"
_HYPHENS = "\u2010\u2011\u2012\u2013\u2014\u2212\ufe58\ufe63"
_TABLE_SIZE = 0x20000
_INVISIBLE = re2.compile(r"[\p{Cf}\p{Mn}\p{Me}]+")
_SURROGATES = range(0xD800, 0xE000)


def _folded(code: int) -> int:
    char = chr(code)
    if code in _SURROGATES:
        return 0xFFFD
    if char in _KEPT_WIDE or code < 0x80:  # noqa: PLR2004  # ASCII folds to itself
        return code
    if "\uff01" <= char <= "\uff5e":
        return code - 0xFEE0
    digit = unicodedata.decimal(char, None)
    if digit is not None:
        return ord("0") + digit
    if unicodedata.category(char) == "Zs":
        return ord(" ")
    return ord("-") if char in _HYPHENS else code


# `str.translate` indexes a list several times faster than it looks up a dict that misses.
_TABLE = [_folded(code) for code in range(_TABLE_SIZE)]


class View:
    """Folded text as UTF-8 `data`; every offset below counts bytes of it unless it says original."""

    def __init__(self, text: str, walls: Iterable[tuple[int, int]] = ()) -> None:
        """Fold `text`; the original spans in `walls` are closed off: nothing matches them."""
        self.original = text
        walled = _with_walls(text, walls)
        self._ascii = walled.isascii()
        self._shifts: list[tuple[int, int]] = [(0, 0)]
        self.data = walled.encode() if self._ascii else self._fold(walled)
        self._mark = (0, 0)

    @cached_property
    def table(self) -> Table:
        """What heads the columns of tables in the view."""
        return Table(self.data)

    def text(self, start: int, end: int) -> str:
        """Return the view between two byte offsets; characters cut by the ends are left out."""
        return self.data[max(start, 0) : end].decode(errors="ignore")

    def before(self, offset: int, length: int) -> str:
        """Return up to `length` characters in front of `offset`, lower case, back to the nearest wall at most."""
        return self.text(offset - 3 * length, offset)[-length:].rpartition(WALL)[2].lower()

    def after(self, offset: int, length: int) -> str:
        """Return up to `length` characters from `offset` on, lower case, up to the nearest wall at most."""
        return self.text(offset, offset + 3 * length)[:length].partition(WALL)[0].lower()

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Map a byte span to offsets in the original; ascending calls cost linear time together."""
        first = self._original_index(start)
        last_char = end - 1
        while self.data[last_char] & 0xC0 == 0x80:  # noqa: PLR2004  # UTF-8 continuation byte
            last_char -= 1
        return first, self._original_index(last_char) + 1

    def width_changes(self, offset: int) -> bool:
        """Tell whether the original switches between half and full width at `offset`."""
        left, right = (self.original[self._original_index(at)] for at in (offset - 1, offset))
        return left.isascii() != right.isascii()

    def _fold(self, text: str) -> bytes:
        data = text.translate(_TABLE).encode(errors="replace")
        if not _INVISIBLE.search(data):
            return data
        return self._drop_invisible(data)

    def _drop_invisible(self, data: bytes) -> bytes:
        kept, position, chars, dropped = [], 0, 0, 0
        for match in _INVISIBLE.finditer(data):
            start, end = match.span()
            if not _droppable(data, start, end):
                continue
            kept.append(data[position:start])
            chars += len(kept[-1].decode())
            dropped += len(data[start:end].decode())
            self._shifts.append((chars, dropped))
            position = end
        return b"".join([*kept, data[position:]])

    def _original_index(self, offset: int) -> int:
        if self._ascii:
            return offset
        index = self._char_index(offset)
        at = bisect.bisect_right(self._shifts, (index, sys.maxsize)) - 1
        return index + self._shifts[at][1]

    def _char_index(self, offset: int) -> int:
        marked, index = self._mark
        if offset < marked:
            marked = index = 0
        index += len(self.data[marked:offset].decode(errors="ignore"))
        self._mark = (offset, index)
        return index


def _droppable(data: bytes, start: int, end: int) -> bool:
    """Marks are dropped after ASCII only: elsewhere they spell words. Format characters are dropped anywhere."""
    after_ascii = start > 0 and data[start - 1] < 0x80  # noqa: PLR2004  # last ASCII byte
    return after_ascii or all(unicodedata.category(char) == "Cf" for char in data[start:end].decode())


def _with_walls(text: str, walls: Iterable[tuple[int, int]]) -> str:
    spans: Sequence[tuple[int, int]] = sorted(walls)
    if not spans:
        return text
    pieces, position = [], 0
    for start, end in spans:
        pieces += [text[position:start], WALL * (end - start)]
        position = end
    return "".join([*pieces, text[position:]])
