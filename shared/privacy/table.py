"""Tables in text (CSV, Markdown, tabs): what heads the column of a cell."""

_DELIMITERS = (b"|", b"\t", b",", b";")
_LONGEST_LINE = 4096  # bytes; a longer line is no row, and is not searched for its ends again and again


class Table:
    """Finds heads of columns in UTF-8 `data`. A table is lines in a row that hold some delimiter equally often."""

    def __init__(self, data: bytes) -> None:
        """Look at nothing yet: lines are read, once each, when a cell is asked about."""
        self._data = data
        self._heads: dict[tuple[int, bytes], int] = {}

    def heading(self, offset: int) -> str:
        """Return the head of the column that the byte `offset` stands in, lower case; empty outside tables."""
        start = self._start(offset)
        row = self._line(start)
        if len(row) < offset - start:
            return ""
        for delimiter in _DELIMITERS:
            head = self._head(start, delimiter) if delimiter in row else start
            if head != start:
                cells = self._line(head).split(delimiter)
                return cells[row.count(delimiter, 0, offset - start)].decode(errors="ignore").strip().lower()
        return ""

    def _start(self, offset: int) -> int:
        return self._data.rfind(b"\n", max(offset - _LONGEST_LINE, 0), offset) + 1

    def _line(self, start: int) -> bytes:
        """Return the line that begins at `start`; nothing for one too long to be a row."""
        end = self._data.find(b"\n", start, start + _LONGEST_LINE)
        at_end = len(self._data) - start < _LONGEST_LINE
        return self._data[start:end] if end >= 0 else self._data[start:] if at_end else b""

    def _head(self, start: int, delimiter: bytes) -> int:
        """Return where the first line of the table starts; what was found for lines on the way is kept."""
        passed, width = [start], self._line(start).count(delimiter)
        while (start, delimiter) not in self._heads:
            above = self._start(start - 1) if start else 0
            if above == start or self._line(above).count(delimiter) != width:
                self._heads[start, delimiter] = start
            else:
                passed.append(above)
                start = above
        head = self._heads[start, delimiter]
        self._heads.update(((line, delimiter), head) for line in passed)
        return head
