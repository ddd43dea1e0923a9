"""Text of a growing sequence, and the stop strings in it."""

from collections.abc import Callable, Sequence

Decode = Callable[[list[int]], str]

REPLACEMENT = "\ufffd"
# A UTF-8 character has at most four bytes, so more pending tokens than this are not one incomplete character.
MAX_PENDING_TOKENS = 8


class Detokenizer:
    """Decodes token by token, amortised O(1), and finds stop strings across token borders.

    Text is decoded in a window that starts a few tokens back (vLLM's prefix and read offsets): some tokenizers treat
    the first token of a text differently. Bytes of an unfinished character are held back.
    """

    def __init__(self, decode: Decode, stop: Sequence[str] = ()) -> None:
        """Take `decode` from ids to text; `stop` strings are looked for in what `append` adds."""
        self._decode = decode
        self._stop = tuple(stop)
        self._overlap = max(map(len, stop), default=1) - 1
        self._ids: list[int] = []
        self._prefix_offset = 0
        self._read_offset = 0
        self._parts: list[str] = []
        self._tail = ""
        self._length = 0

    @property
    def text(self) -> str:
        """Everything decoded so far."""
        return "".join(self._parts)

    def append(self, token_id: int, *, search: bool = True) -> str | None:
        """Add a token. Return the text before the first stop string once one is complete, else None.

        With `search` off, the new text is exempt from stop strings for good (`min_tokens`).
        """
        self._ids.append(token_id)
        return self._extend(self._new_text(), search=search)

    def flush(self, *, search: bool = True) -> str | None:
        """Decode what was held back, at the end of a generation; return as `append` does."""
        return self._extend(self._take(self._window(self._read_offset), self._window(len(self._ids))), search=search)

    def _window(self, end: int) -> str:
        return self._decode(self._ids[self._prefix_offset : end])

    def _new_text(self) -> str:
        before, now = self._window(self._read_offset), self._window(len(self._ids))
        incomplete = now.endswith(REPLACEMENT) and len(self._ids) - self._read_offset < MAX_PENDING_TOKENS
        return "" if incomplete or len(now) <= len(before) else self._take(before, now)

    def _take(self, before: str, now: str) -> str:
        self._prefix_offset, self._read_offset = self._read_offset, len(self._ids)
        return now[len(before) :]

    def _extend(self, new: str, *, search: bool) -> str | None:
        if not new:
            return None
        self._parts.append(new)
        start = self._length - len(self._tail)
        window = self._tail + new
        self._length += len(new)
        if not search:
            self._tail = ""
            return None
        self._tail = window[-self._overlap :] if self._overlap else ""
        found = [position for position in map(window.find, self._stop) if position >= 0]
        return self.text[: start + min(found)] if found else None
