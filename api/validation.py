"""From pydantic's findings to an error that names the field, says what to do, and never quotes the value."""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.errors import InvalidInputError
from shared.privacy import Scrubber

PART_LENGTH = 64
_SCRUBBER = Scrubber()
_TRANSPORT = frozenset({"body", "query", "header", "path"})


def field_path(parts: Sequence[object]) -> str | None:
    """Return `sampling.temperature` for `("sampling", "temperature")`; names are clipped and made printable."""
    return ".".join(map(_clean, parts)) or None


def _clean(part: object) -> str:
    # A name may be personal data by mistake: a value that slipped into a key.
    text = _SCRUBBER.scrub(str(part)[:PART_LENGTH]).text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def invalid_input(findings: Sequence[Mapping[str, Any]]) -> InvalidInputError:
    """Return the first of pydantic's `findings` as an error for the client."""
    if not findings:
        return InvalidInputError("the input is invalid: compare it with the API document")
    finding = findings[0]
    location = [part for part in finding["loc"] if part != "[key]"]
    if location and location[0] in _TRANSPORT:
        location = location[1:]
    path = field_path(location)
    return InvalidInputError(_message(path, str(finding["type"]), str(finding["msg"])), field=path)


def _message(path: str | None, kind: str, message: str) -> str:
    if kind == "json_invalid":  # what is not JSON at all was refused before
        return "the body is nested too deeply: flatten it"
    if path is None:
        return "the body must be a JSON object: send {...}"
    if kind == "extra_forbidden":
        return f"unknown field {path}: remove it, or check its spelling"
    if kind == "missing":
        return f"{path} is required: add it"
    if kind == "string_too_short":
        return f"{path} is empty: send some text"
    reason = message[:1].lower() + message[1:]
    return f"{path} is invalid: {reason.removeprefix('value error, ')}; correct it and send it again"
