"""Strict JSON bodies: UTF-8, no NaN, no duplicate names, no text PostgreSQL or a tokenizer could not take."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from api.validation import field_path, invalid_input
from shared.errors import InvalidInputError, UnsupportedMediaTypeError

Body = TypeVar("Body", bound=BaseModel)
_Path = tuple[object, ...]
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


async def json_bytes(request: Request) -> bytes:
    """Return the body of a request that says it is JSON.

    Raises:
        UnsupportedMediaTypeError: another content type, or none.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaTypeError("send the body with Content-Type: application/json", field="Content-Type")
    return await request.body()


def parse(model: type[Body], raw: bytes) -> Body:
    """Return `raw` as a `model`, without coercion: `"5"` is no number and `true` is no 1.

    Raises:
        InvalidInputError: names the first field that is wrong.
    """
    for path, problem in _problems(_decode(raw)):
        where = field_path(path)
        raise InvalidInputError(f"{where or 'the body'} holds {problem}: remove it", field=where)
    try:
        return model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        findings = error.errors(include_input=False, include_url=False, include_context=False)
        # Without the cause: its text quotes the input.
        raise invalid_input(findings) from None


def _decode(raw: bytes) -> Any:  # noqa: ANN401  # JSON is any
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError:
        raise InvalidInputError("the body is not UTF-8: encode it as UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInputError(f"the body is not valid JSON ({where}): correct it") from None
    except (ValueError, RecursionError):
        raise InvalidInputError("the body is nested too deeply or holds a number that is too long") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = field_path([next(name for name, count in counts.items() if count > 1)])
        raise InvalidInputError(f"{twice} stands twice in one object: keep one", field=twice)
    return document


def _problems(document: Any) -> Iterator[tuple[_Path, str]]:  # noqa: ANN401  # JSON is any
    waiting: list[tuple[_Path, Any]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if problem := _problem(value):
            yield path, problem
        elif isinstance(value, dict):
            yield from (((*path, name), f"a name with {found}") for name in value if (found := _problem(name)))
            waiting += [((*path, name), item) for name, item in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*path, index), item) for index, item in reversed(list(enumerate(value)))]


def _problem(value: object) -> str | None:
    if isinstance(value, str) and (found := _UNSTORABLE.search(value)):
        return "a NUL character (U+0000)" if found[0] == "\0" else "half of a surrogate pair"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    return None
