"""Lines of a UTF-8 file as a stream: bounded in length, each bad byte placed by its offset in the file."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cli.bulk.document import MAX_DOCUMENT_BYTES, Fault, not_utf8, too_large


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its line ending; `text` stands in for bad bytes with surrogates when there is a `fault`."""

    number: int
    text: str
    fault: Fault | None


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of `path`, numbered from 1, without a byte order mark."""
    with path.open("rb") as file:
        offset = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        file.seek(offset)
        number = 0
        while raw := file.readline(MAX_DOCUMENT_BYTES + 1):
            number += 1
            yield _decoded(path, number, raw, offset)
            offset += len(raw) + _skip_rest(file, raw)


def _decoded(path: Path, number: int, raw: bytes, offset: int) -> Line:
    if len(raw) > MAX_DOCUMENT_BYTES:
        return Line(number, "", too_large(f"line {number} of {path.name}"))
    try:
        return Line(number, raw.decode(), None)
    except UnicodeDecodeError as error:
        return Line(number, raw.decode(errors="surrogateescape"), not_utf8(path.name, offset + error.start))


def _skip_rest(file: BinaryIO, raw: bytes) -> int:
    skipped = 0
    while not raw.endswith(b"\n") and (raw := file.readline(MAX_DOCUMENT_BYTES)):
        skipped += len(raw)
    return skipped
