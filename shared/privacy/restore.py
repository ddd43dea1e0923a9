"""Putting original values back into text, for the owner of the mapping only."""

import json
import re
from collections import Counter
from collections.abc import Mapping

from shared.privacy.json_text import looks_like_json, parses
from shared.privacy.placeholders import BARE, PLACEHOLDER, canonical, occurrence_key

_MAYBE_QUOTED = re.compile(rf'("?)({PLACEHOLDER.pattern})("?)', re.ASCII)


def restore(text: str, mapping: Mapping[str, str]) -> tuple[str, int]:
    """Return `text` with the values of known placeholders, and how many placeholders the mapping does not know.

    One pass: a restored value is never searched again, and `<PHONE_1>` is no part of `<PHONE_10>`. Case and blanks
    inside a placeholder are forgiven, because models alter both. JSON stays JSON.
    """
    seen: Counter[str] = Counter()
    unresolved = 0
    in_json = looks_like_json(text)

    def original(match: re.Match[str]) -> str:
        nonlocal unresolved
        placeholder = _canonical(match[2])
        if placeholder not in mapping:
            unresolved += 1
            return match[0]
        seen[placeholder] += 1
        value = mapping.get(occurrence_key(placeholder, seen[placeholder]), mapping[placeholder])
        if value.startswith(BARE) and match[1] and match[5]:
            return value.removeprefix(BARE)
        value = value.removeprefix(BARE)
        return match[1] + (_as_json(value) if in_json else value) + match[5]

    return _MAYBE_QUOTED.sub(original, text), unresolved


def _as_json(value: str) -> str:
    """Return `value` as it may stand in a JSON string; what came out of one already does."""
    return value if parses(f'"{value}"') else json.dumps(value, ensure_ascii=False)[1:-1]


def _canonical(placeholder: str) -> str:
    match = PLACEHOLDER.fullmatch(placeholder)
    return canonical(match) if match else placeholder
