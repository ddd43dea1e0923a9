"""Putting original values back into text, for the owner of the mapping only."""

import re
from collections import Counter
from collections.abc import Mapping

from shared.privacy.placeholders import PLACEHOLDER, canonical, occurrence_key


def restore(text: str, mapping: Mapping[str, str]) -> tuple[str, int]:
    """Return `text` with the values of known placeholders, and how many placeholders the mapping does not know.

    One pass: a restored value is never searched again, and `<PHONE_1>` is no part of `<PHONE_10>`. Case and blanks
    inside a placeholder are forgiven, because models alter both.
    """
    seen: Counter[str] = Counter()
    unresolved = 0

    def original(match: re.Match[str]) -> str:
        nonlocal unresolved
        placeholder = canonical(match)
        if placeholder not in mapping:
            unresolved += 1
            return match[0]
        seen[placeholder] += 1
        return mapping.get(occurrence_key(placeholder, seen[placeholder]), mapping[placeholder])

    return PLACEHOLDER.sub(original, text), unresolved
