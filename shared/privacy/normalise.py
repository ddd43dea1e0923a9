"""One form per value, so that every spelling of it is recognised as the same."""

import re

from shared.privacy.fold import View
from shared.privacy.words import one_of

_GROUPED = one_of(
    "PHONE BANK_CARD CN_RESIDENT_ID CN_USCC CN_PASSPORT CN_PLATE IBAN US_SSN HK_ID TW_ID MAC_ADDRESS MEDICAL_RECORD_NO"
)
_CASELESS = frozenset({"EMAIL", "IP_ADDRESS"})
_PUNCTUATION = re.compile(r"[\W_]+")
_CHINESE_PREFIX = re.compile(r"(?:00)?86(?=1[3-9][0-9]{9}\Z)")


def normalised(entity: str, value: str) -> str:
    """Return `value` without the freedom its type leaves: width, grouping, letter case, a +86 before a mobile."""
    folded = value if value.isascii() else View(value).data.decode()
    if entity in _GROUPED:
        bare = _PUNCTUATION.sub("", folded).upper()
        return _CHINESE_PREFIX.sub("", bare) if entity == "PHONE" else bare
    return folded.lower() if entity in _CASELESS else folded
