"""Identity numbers of Hong Kong, Taiwan and the United States."""

import re

from shared.privacy.recognizers.recognizer import LEFT, LEFT_OF_DIGITS, RIGHT, RIGHT_OF_DIGITS, Candidate, Recognizer
from shared.privacy.words import Words

_LEFT_OR_LABEL = rf"(?:{LEFT}|(?i:hkid|id|no))"
_HONG_KONG_BRACKETED = rf"{_LEFT_OR_LABEL}((?i:[A-Z]{{1,2}}[ -]?[0-9]{{3}} ?[0-9]{{3}} ?\( ?[0-9A] ?\)))"
_HONG_KONG_BARE = rf"{_LEFT_OR_LABEL}((?i:[A-Z]{{1,2}}[ -]?[0-9]{{3}} ?[0-9]{{3}}[ -]?[0-9A])){RIGHT}"
_TAIWAN = (
    rf"{_LEFT_OR_LABEL}((?i:[A-Z][ -]?[1289A-D](?:[ -]?[0-9]{{4}}){{2}}|[A-Z][ -]?[1289](?:[ -]?[0-9]){{8}})){RIGHT}"
)
_SSN = rf"{LEFT_OF_DIGITS}([0-9]{{3}}-[0-9]{{2}}-[0-9]{{4}}){RIGHT_OF_DIGITS}"
_SSN_BARE = rf"{LEFT_OF_DIGITS}([0-9]{{3}} [0-9]{{2}} [0-9]{{4}}|[0-9]{{9}}){RIGHT_OF_DIGITS}"
_SSN_LABELS = ("ssn", "SSN", "Ssn", "ocial", "OCIAL", "tin", "TIN", "Tin", "社")

_HONG_KONG_WORDS = Words.of("香港 港澳 hkid hk_id hong_kong 身份证 身份證")
_TAIWAN_WORDS = Words.of(
    "台湾 臺灣 台灣 身份证 身分證 身份證 统一编号 統一編號 证号 字号 字號 taiwan tw_id roc national_id id_number"
)
_SSN_WORDS = Words.of(
    "ssn ssns social_security social_security_number social_security_no tin itin 社会安全号 社会安全号码 社安号"
)
_OTHER_NUMBER = re.compile(
    r"(?:part|sku|serial|model|order|invoice|ticket|lot|batch|ref|item|编号|序列号?|型号|单号|批号|流水)"
    r"[ ]?(?:number|num|code|id)?[\s#:no.号码为是]{0,6}\Z"
)
_MORE_DIGITS = re.compile(r"[-.,]?[0-9]")
_DIGITS_BEFORE = re.compile(r"[0-9][.,-]\Z|[a-z]-\Z")
_TAIWAN_LETTERS = "ABCDEFGHJKLMNPQRSTUVXYWZIO"


def is_hong_kong_id(number: str) -> bool:
    """Check the last character: weights 9 to 2 over letters (A is 10; a missing first letter counts 36), MOD 11."""
    values = [int(char, 36) for char in number[:-1]]
    values = [36, *values] if len(number) == 8 else values  # noqa: PLR2004  # one letter, six digits, check
    total = sum(value * weight for value, weight in zip(values, range(9, 1, -1), strict=True))
    return number[-1] == "0123456789A"[-total % 11]


def is_taiwan_id(number: str) -> bool:
    """Check the last digit: the letter stands for 10 to 35, weights 1 9 8 7 6 5 4 3 2 1 1, MOD 10."""
    tens, ones = divmod(_TAIWAN_LETTERS.index(number[0]) + 10, 10)
    total = tens + 9 * ones + sum(int(d) * w for d, w in zip(number[1:], (8, 7, 6, 5, 4, 3, 2, 1, 1), strict=True))
    return total % 10 == 0


def is_assigned_ssn(digits: str) -> bool:
    """Refuse areas, groups and serials that are never given out."""
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in {"000", "666"} and area < "900" and group != "00" and serial != "0000"


def _hong_kong_bracketed(candidate: Candidate) -> Candidate | None:
    return candidate if is_hong_kong_id(candidate.alphanumerics) else None


def _hong_kong_bare(candidate: Candidate) -> Candidate | None:
    labelled = candidate.near(_HONG_KONG_WORDS, before=24, after=8) or _HONG_KONG_WORDS.search(candidate.heading)
    return candidate if labelled and is_hong_kong_id(candidate.alphanumerics) else None


def _taiwan(candidate: Candidate) -> Candidate | None:
    number = candidate.alphanumerics
    if not number[1:].isdigit() or not is_taiwan_id(number):
        return None
    known_otherwise = _OTHER_NUMBER.search(candidate.before(16)) and not candidate.near(_TAIWAN_WORDS, before=24)
    return None if known_otherwise else candidate


def _ssn(candidate: Candidate) -> Candidate | None:
    if not is_assigned_ssn(candidate.alphanumerics) or not candidate.borders_are_clear:
        return None
    before = candidate.before(40)
    if _DIGITS_BEFORE.search(before) or _MORE_DIGITS.match(candidate.after(2)):
        return None
    labelled = _SSN_WORDS.search(before) or _SSN_WORDS.search(candidate.heading)
    plain = "-" in candidate.text and not _OTHER_NUMBER.search(before[-16:])
    return candidate if labelled or plain else None


RECOGNIZERS = (
    Recognizer.of("HK_ID", _HONG_KONG_BRACKETED, _hong_kong_bracketed, needs=("(",)),
    Recognizer.of("HK_ID", _HONG_KONG_BARE, _hong_kong_bare),
    Recognizer.of("TW_ID", _TAIWAN, _taiwan),
    Recognizer.of("US_SSN", _SSN, _ssn),
    Recognizer.of("US_SSN", _SSN_BARE, _ssn, needs=_SSN_LABELS),
)
