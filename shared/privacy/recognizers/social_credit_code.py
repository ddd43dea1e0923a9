"""Unified social credit codes of Chinese organisations (GB 32100): 18 characters, two check characters."""

from shared.privacy.recognizers.recognizer import LEFT_OF_DIGITS, RIGHT, Candidate, Recognizer, grouped
from shared.privacy.recognizers.resident_id import PROVINCES
from shared.privacy.words import one_of

_BODY = "[0-9A-HJ-NP-RT-UW-Ya-hj-np-rt-uw-y]"
_FORMS = grouped(
    _BODY, _BODY, "18", "4-4-4-4-2", "2-6-9-1", "8-9-1", "8-10", "8-8-2", "9-9", "6-6-6", "2-6-10", "1-1-6-9-1"
)
_PATTERN = rf"{LEFT_OF_DIGITS}({_FORMS}){RIGHT}"

_ALPHABET = "0123456789ABCDEFGHJKLMNPQRTUWXY"
_REGISTRARS = one_of(
    "11 12 13 19 21 29 31 32 33 34 35 39 41 49 51 52 53 54 59 61 62 69 71 72 79 81 89 91 92 93 A1 A9 N1 N2 N3 N9 Y1"
)
_ORGANISATION_WEIGHTS = (3, 7, 9, 10, 5, 8, 4, 2)
_CODE_WEIGHTS = (1, 3, 9, 27, 19, 26, 16, 17, 20, 29, 25, 13, 8, 24, 10, 30, 28)


def is_social_credit_code(code: str) -> bool:
    """Check registrar, province, the organisation's own check character (GB 11714) and that of the whole code."""
    province = code[2:4] in PROVINCES or code[2:4] == "10"
    return (
        code[:2] in _REGISTRARS
        and province
        and code[2:8].isdigit()
        and code[16] == _organisation_check(code[8:16])
        and code[17] == _code_check(code)
    )


def _organisation_check(code: str) -> str:
    values = (int(char, 36) for char in code)
    total = sum(value * weight for value, weight in zip(values, _ORGANISATION_WEIGHTS, strict=True))
    return "0123456789X0"[11 - total % 11]


def _code_check(code: str) -> str:
    total = sum(_ALPHABET.index(char) * weight for char, weight in zip(code[:17], _CODE_WEIGHTS, strict=True))
    return _ALPHABET[-total % 31]


def _check(candidate: Candidate) -> Candidate | None:
    return candidate if is_social_credit_code(candidate.alphanumerics) and candidate.borders_are_clear else None


RECOGNIZERS = (Recognizer.of("CN_USCC", _PATTERN, _check),)
