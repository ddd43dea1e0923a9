"""Completed records of an earlier run, matched to documents by key while both move forward."""

from collections import OrderedDict
from collections.abc import Iterator

from cli.bulk.record import Record, completed, from_line

WINDOW = 1024


class EarlierRecords:
    """A sliding window over old lines: documents may have been added or removed since, up to `WINDOW` in a row."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        """Read `lines` lazily; those that are torn, foreign or not completed are passed over."""
        self._lines = lines
        self._window: OrderedDict[str, bytes] = OrderedDict()
        self._refill()

    def take(self, key: str) -> Record | None:
        """Return the completed record under `key` and forget those before it; None when there is none."""
        if key not in self._window:
            return None
        while True:
            passed, line = self._window.popitem(last=False)
            if passed == key:
                self._refill()
                return from_line(line)

    def remaining(self) -> Iterator[bytes]:
        """Yield the lines not yet taken or passed."""
        yield from self._window.values()
        yield from self._lines

    def _refill(self) -> None:
        while len(self._window) < WINDOW and (line := next(self._lines, None)) is not None:
            record = from_line(line)
            if record is not None and completed(record):
                self._window[record["key"]] = line
