"""`tokenmill scrub`: shows on this machine, without any server, what scrubbing makes of a text."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from cli.embedded.files import write_private
from shared.errors import InvalidInputError
from shared.privacy import Policy, Scrubber
from shared.privacy.policy_file import load_policy
from shared.settings import get_settings

STANDARD = Path("-")
Source = Annotated[Path | None, typer.Argument(help="A text file; - is standard input.")]
Spans = Annotated[
    Path | None, typer.Option("--spans", help="JSON lines {id, text} to answer with {id, entities, scrubbed} each.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where to write; - is standard output.")]
PolicyName = Annotated[str, typer.Option("--policy", help="A built-in policy (default, strict) or a JSON file.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("scrub", help="Show what scrubbing makes of a file; nothing is sent or stored.")(scrub)


def scrub(source: Source = None, spans: Spans = None, output: Output = STANDARD, policy: PolicyName = "strict") -> None:
    """Write the scrubbed text to standard output and the receipt to standard error, or spans as JSON lines."""
    if (source is None) == (spans is None):
        raise InvalidInputError("name a FILE, or --spans IN.jsonl: one of the two", field="FILE")
    chosen = load_policy(policy)
    if spans is not None:
        _write(output, _rows(spans, chosen))
        return
    result = Scrubber.configured(get_settings()).scrub(_text(source or STANDARD), policy=chosen)
    _write(output, [result.text])
    typer.echo(json.dumps(result.receipt), err=True)


def _text(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if path == STANDARD else path.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}", field="FILE") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not UTF-8: convert it first", field="FILE") from None


@contextmanager
def _lines(path: Path) -> Iterator[IO[bytes]]:
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}", field="--spans") from None
    with file:
        yield file


def _rows(path: Path, policy: Policy) -> Iterator[str]:
    scrubber = Scrubber.configured(get_settings())
    with _lines(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                row = _row(line, number)
                result = scrubber.scrub(row["text"], policy=policy)
                entities = [{"type": span.entity, "start": span.start, "end": span.end} for span in result.spans]
                yield json.dumps({"id": row["id"], "entities": entities, "scrubbed": result.text}) + "\n"


def _row(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        raise InvalidInputError(f"line {number} is no JSON: one object {{id, text}} a line", field="--spans") from None
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or "id" not in row:
        raise InvalidInputError(f"line {number} lacks id or text (a string)", field="--spans")
    return row


def _write(path: Path, pieces: Iterator[str] | list[str]) -> None:
    if path == STANDARD:
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
    else:
        write_private(path, "".join(pieces))
