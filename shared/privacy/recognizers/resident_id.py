"""Resident identity numbers of mainland China (GB 11643): province, date of birth and MOD 11-2 check character."""

from datetime import date

from shared.privacy.recognizers.recognizer import LEFT_OF_DIGITS, RIGHT_OF_DIGITS, Candidate, Recognizer, grouped
from shared.privacy.words import one_of

_FORMS = grouped(
    "[0-9]", "[0-9Xx]", "18", "6-8-4", "6-4-4-4", "4-4-4-4-2", "3-3-4-4-4", "6-4-2-2-4", "6-12", "14-4", "17-1"
)
_PATTERN = rf"{LEFT_OF_DIGITS}({_FORMS}){RIGHT_OF_DIGITS}"

PROVINCES = one_of(
    "11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71 81 82 83"
)
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECK_CHARACTERS = "10X98765432"


def is_resident_id(number: str) -> bool:
    """Check 18 upper-case characters; region codes beyond the province are not checked, they change over the years."""
    return number[:2] in PROVINCES and _is_date(number[6:14]) and number[-1] == _check_character(number)


def _check_character(number: str) -> str:
    return _CHECK_CHARACTERS[sum(int(digit) * weight for digit, weight in zip(number, _WEIGHTS, strict=False)) % 11]


def _is_date(digits: str) -> bool:
    try:
        born = date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return False
    return born.year >= 1850  # noqa: PLR2004  # nobody older holds a number


def _check(candidate: Candidate) -> Candidate | None:
    return candidate if is_resident_id(candidate.alphanumerics) and candidate.borders_are_clear else None


RECOGNIZERS = (Recognizer.of("CN_RESIDENT_ID", _PATTERN, _check),)
