"""Documents from folders, text files, JSONL and CSV, read as a stream: one document in memory at a time."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cli.bulk.document import MAX_DOCUMENT_BYTES, Document, Fault, fault_in, not_utf8, too_large
from cli.bulk.line_reader import Line, read_lines
from shared.errors import InvalidInputError

TEXT_SUFFIXES = frozenset({".txt", ".md"})
DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSONL_SUFFIXES = frozenset({".jsonl", ".ndjson"})


class _Read(NamedTuple):
    name: str
    text: str
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one run in the order given; folders are searched recursively and sorted."""

    paths: Sequence[Path]
    text_column: str = "text"
    id_column: str = "id"

    def check(self) -> None:
        """Refuse what cannot be read at all, before anything is submitted.

        Raises:
            InvalidInputError: an input is missing, of an unknown kind, an empty folder or a table without the column.
        """
        for path in self.paths:
            _check_kind(path)
            if path.suffix.lower() in DELIMITERS:
                self._header(path)

    def count(self) -> int:
        """Return the number of documents, without parsing them."""
        return sum(self._count(path) for path in self.paths)

    def documents(self) -> Iterator[Document]:
        """Yield every document in order.

        Raises:
            InvalidInputError: a table is malformed beyond the row it happens in.
        """
        reads = (read for path in self.paths for read in self._read(path))
        for index, (name, text, fault) in enumerate(reads):
            found = fault or fault_in(text)
            yield Document(index, name, "" if found else text, found)

    def _read(self, path: Path) -> Iterator[_Read]:
        if path.is_dir():
            return (_read_text(file, file.relative_to(path).as_posix()) for file in text_files(path))
        if path.suffix.lower() in JSONL_SUFFIXES:
            return self._read_jsonl(path)
        if path.suffix.lower() in DELIMITERS:
            return self._read_table(path)
        return iter([_read_text(path, path.name)])

    def _count(self, path: Path) -> int:
        if path.is_dir():
            return len(text_files(path))
        if path.suffix.lower() in JSONL_SUFFIXES:
            return sum(1 for line in read_lines(path) if line.fault or line.text.strip())
        if path.suffix.lower() in DELIMITERS:
            return sum(1 for row in _rows(path, lambda line: line.text) if row) - 1
        return 1

    def _read_jsonl(self, path: Path) -> Iterator[_Read]:
        return (self._from_json(path, line) for line in read_lines(path) if line.fault or line.text.strip())

    def _from_json(self, path: Path, line: Line) -> _Read:
        place = f"{path.name}:{line.number}"
        if line.fault:
            return _Read(place, "", line.fault)
        try:
            record = json.loads(line.text)
        except (ValueError, RecursionError):
            return _Read(place, "", Fault("invalid_json_line", f"{place} is not valid JSON: mend or remove the line"))
        if not isinstance(record, dict):
            return _Read(place, "", Fault("invalid_json_line", f"{place} is not a JSON object: wrap the text in one"))
        identifier = record.get(self.id_column)
        name = str(identifier) if isinstance(identifier, str | int) and str(identifier) else place
        text = record.get(self.text_column)
        if not isinstance(text, str):
            return _Read(name, "", self._no_text(place))
        return _Read(name, text, None)

    def _no_text(self, place: str) -> Fault:
        return Fault(
            "missing_text", f"{place} has no string in field {self.text_column!r}: name the field with --input-column"
        )

    def _read_table(self, path: Path) -> Iterator[_Read]:
        faults: list[Fault] = []

        def text_of(line: Line) -> str:
            faults.extend([line.fault] if line.fault else [])
            return line.text

        rows = (row for row in _rows(path, text_of) if row)
        header = next(rows)
        for number, row in enumerate(rows, 1):
            yield self._from_row(f"{path.name}:{number}", dict(zip(header, row, strict=False)), faults)
            faults.clear()

    def _from_row(self, place: str, row: dict[str, str], faults: list[Fault]) -> _Read:
        if faults:
            return _Read(place, "", faults[0])
        name = row.get(self.id_column) or place
        text = row.get(self.text_column)
        return _Read(name, text or "", self._no_text(place) if text is None else None)

    def _header(self, path: Path) -> None:
        first = next(read_lines(path), None)
        if first is None:
            raise InvalidInputError(f"{path} is empty: its first line must name the columns", field="INPUT")
        if first.fault:
            raise InvalidInputError(first.fault.message, field="INPUT")
        header = next(_rows(path, lambda line: line.text), [])
        if self.text_column not in header:
            names = ", ".join(header)
            raise InvalidInputError(
                f"{path} has no column {self.text_column!r} (it has: {names}): name one with --input-column",
                field="--input-column",
            )


def text_files(folder: Path) -> list[Path]:
    """Return the text files below `folder`, sorted by relative path."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in TEXT_SUFFIXES and path.is_file())


def _check_kind(path: Path) -> None:
    if path.is_dir():
        if not text_files(path):
            raise InvalidInputError(f"{path} holds no .txt or .md file: name another folder", field="INPUT")
    elif not path.is_file():
        raise InvalidInputError(f"{path} does not exist: check the path", field="INPUT")
    elif path.suffix.lower() not in TEXT_SUFFIXES | JSONL_SUFFIXES | DELIMITERS.keys():
        raise InvalidInputError(
            f"{path} is of an unknown kind: give a folder, .txt, .md, .jsonl, .csv or .tsv", field="INPUT"
        )


def _read_text(path: Path, name: str) -> _Read:
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            return _Read(name, "", too_large(path.name))
        return _Read(name, path.read_bytes().decode().removeprefix("\ufeff"), None)
    except UnicodeDecodeError as error:
        return _Read(name, "", not_utf8(path.name, error.start))
    except OSError as error:
        return _Read(name, "", Fault("unreadable", f"{path.name} cannot be read: {error.strerror}"))


def _rows(path: Path, text_of: Callable[[Line], str]) -> Iterator[list[str]]:
    csv.field_size_limit(MAX_DOCUMENT_BYTES)
    rows = csv.reader(map(text_of, read_lines(path)), delimiter=DELIMITERS[path.suffix.lower()], strict=True)
    try:
        yield from rows
    except csv.Error as error:
        raise InvalidInputError(
            f"{path} is malformed at line {rows.line_num}: {error}; mend the quoting and run again", field="INPUT"
        ) from error
