"""The result file: one complete line per document in input order, whatever stops the run.

A repeated run keeps the lines that still hold in place. From the first document that must run again, later lines move
to `<file>.previous` and come back as their documents are reached, so that no result is lost while the file is rebuilt.
"""

import fcntl
import heapq
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from cli.bulk.earlier_records import EarlierRecords
from cli.bulk.record import FIRST_BYTES, Record, completed, from_line, to_line
from shared.errors import ConfigurationError, InvalidInputError

BLOCK = 64 * 1024


class Reused(NamedTuple):
    """A completed record of an earlier run, and whether its line already stands where it belongs."""

    record: Record
    in_place: bool


class ResultFile:
    """Lines of one plan's results. Not for use by two threads."""

    def __init__(self, path: Path, plan_digest: str, *, overwrite: bool = False) -> None:
        """Open or create `path`, lock it and cut off a torn last line.

        Raises:
            InvalidInputError: another run writes to it, or it holds something else.
        """
        self.path = path
        self.written = 0
        self._previous_path = path.with_name(path.name + ".previous")
        self._file = _open_locked(path)
        if overwrite:
            self._file.truncate(0)
            self._previous_path.unlink(missing_ok=True)
        try:
            _refuse_foreign(path, self._file, plan_digest)
        except InvalidInputError:
            self._file.close()
            raise
        _cut_torn_line(self._file)
        self._kept_until = 0
        self._in_step = True
        self._previous_file: BinaryIO | None = None
        self._previous = self._open_previous()

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; what was written stays."""
        self.close()

    def take(self, key: str) -> Reused | None:
        """Return the earlier result of the next document, or None when it must run."""
        # The previous lines advance with every document, also those found in place.
        earlier = self._previous.take(key)
        if self._in_step:
            record = self._next_in_place(key)
            if record is not None:
                self.written += 1
                return Reused(record, in_place=True)
            self._leave_step()
            earlier = earlier or self._previous.take(key)
        return Reused(earlier, in_place=False) if earlier else None

    def append(self, record: Record) -> None:
        """Write the next line, whole.

        Raises:
            ConfigurationError: the disk refuses it; the next run cuts off what is torn.
        """
        try:
            self._file.write(to_line(record))
            self._file.flush()
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be written: {error.strerror or error}; make room and run the same command again",
                field="--output",
            ) from error
        self.written += 1

    def finish(self) -> None:
        """Make the file final: nothing beyond the last document, nothing left beside it."""
        if self._in_step:
            self._file.truncate(self._kept_until)
        os.fsync(self._file.fileno())
        self._previous_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        # After a failed write, closing tries and fails once more.
        with suppress(OSError):
            self._file.close()
        if self._previous_file:
            self._previous_file.close()

    def _next_in_place(self, key: str) -> Record | None:
        line = self._file.readline()
        record = from_line(line)
        if record is None or record["key"] != key or not completed(record):
            return None
        self._kept_until += len(line)
        return record

    def _leave_step(self) -> None:
        self._in_step = False
        self._file.seek(self._kept_until)
        if self._file.read(1):
            self._file.seek(self._kept_until)
            self._stash_rest()
            self._file.truncate(self._kept_until)
        self._file.seek(self._kept_until)

    def _stash_rest(self) -> None:
        partial = self._previous_path.with_name(self._previous_path.name + ".partial")
        with partial.open("wb") as stash:
            # The newer line of a document comes first and wins.
            for line in heapq.merge(iter(self._file), self._previous.remaining(), key=_index_of):
                stash.write(line)
            stash.flush()
            os.fsync(stash.fileno())
        partial.replace(self._previous_path)
        if self._previous_file:
            self._previous_file.close()
        self._previous = self._open_previous()

    def _open_previous(self) -> EarlierRecords:
        if not self._previous_path.exists():
            return EarlierRecords(iter(()))
        self._previous_file = self._previous_path.open("rb")
        return EarlierRecords(iter(self._previous_file))


def _index_of(line: bytes) -> int:
    record = from_line(line)
    return record["index"] if record else -1


def _open_locked(path: Path) -> BinaryIO:
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror or error}", field="--output") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InvalidInputError(f"{path} is no ordinary file: name another one with -o", field="--output")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise InvalidInputError(
            f"another run is writing to {path}: wait for it or name another file", field="--output"
        ) from error
    return file


def _refuse_foreign(path: Path, file: BinaryIO, plan_digest: str) -> None:
    first = file.readline()
    file.seek(0)
    if not first:
        return
    if not first.startswith(FIRST_BYTES) and not FIRST_BYTES.startswith(first):
        raise InvalidInputError(f"{path} is no result file: name another one with -o", field="--output")
    record = from_line(first)
    if record is not None and not record["key"].startswith(plan_digest + "-"):
        raise InvalidInputError(
            f"{path} holds results of another instruction, model, sampling or run name: name another file with -o, "
            "or discard them with --overwrite",
            field="--output",
        )


def _cut_torn_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    file.truncate(_after_last_newline(file, end))
    file.seek(0)


def _after_last_newline(file: BinaryIO, end: int) -> int:
    for block_end in _block_ends(end):
        start = max(0, block_end - BLOCK)
        file.seek(start)
        found = file.read(block_end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
    return 0


def _block_ends(end: int) -> Iterator[int]:
    return iter(range(end, 0, -BLOCK))
