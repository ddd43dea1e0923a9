"""Putting original values back into text, for the owner of the mapping only."""

import re
from collections import Counter
from collections.abc import Mapping

from shared.privacy.placeholders import BARE, PLACEHOLDER, canonical, occurrence_key

_MAYBE_QUOTED = re.compile(rf'("?)({PLACEHOLDER.pattern})("?)', re.ASCII)


def restore(text: str, mapping: Mapping[str, str]) -> tuple[str, int]:
    """Return `text` with the values of known placeholders, and how many placeholders the mapping does not know.

    One pass: a restored value is never searched again, and `<PHONE_1>` is no part of `<PHONE_10>`. Case and blanks
    inside a placeholder are forgiven, because models alter both.
    """
    seen: Counter[str] = Counter()
    unresolved = 0

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
        return match[1] + value.removeprefix(BARE) + match[5]

    return _MAYBE_QUOTED.sub(original, text), unresolved


def _canonical(placeholder: str) -> str:
    match = PLACEHOLDER.fullmatch(placeholder)
    return canonical(match) if match else placeholder
