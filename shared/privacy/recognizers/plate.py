"""Vehicle plates of mainland China (GA 36), new-energy ones too."""

import re

from shared.privacy.recognizers.recognizer import Candidate, Recognizer
from shared.privacy.words import Words

_PROVINCE = "[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼]"
_DOT = r"[ ·•・‧∙.-]?"
_SERIAL = "(?i:[0-9A-HJ-NP-Z]{4}[挂学警港澳领使试超]|[0-9A-HJ-NP-Z]{5,6})"
_PLATE = rf"{_PROVINCE} ?[A-HJ-NP-Za-hj-np-z]{_DOT}{_SERIAL}"
_SPECIAL = rf"(?:WJ|wj){_PROVINCE}?{_DOT}[0-9]{{4}}[0-9A-Za-z]|使[0-9]{{6}}|[0-9]{{6}}使"
_PATTERN = rf"({_PLATE}|{_SPECIAL})(?:[^0-9A-Za-z_]|$)"

# Two Chinese characters that end in a province's short name but are a word: 更新A12345.
_WORD_BEFORE = re.compile(
    r"[更最全创革刷翻崭重焕清迎]新\Z|[白乌阿多]云\Z|[昂尊富]贵\Z|[年]青\Z|[安保丁归]宁\Z|[宝犀]吉\Z"
)
_VEHICLE = Words.of("车牌 车号 牌照 号牌 车辆 车 plate plates vehicle car truck")
_MIN_DIGITS = 2
_NEW_ENERGY = re.compile(r"[A-HJK][0-9A-HJ-NP-Z][0-9]{4}|[0-9]{5}[A-HJK]")


def _check(candidate: Candidate) -> Candidate | None:
    serial = "".join(filter(str.isalnum, candidate.text)).upper()[2:]
    if sum(char in "0123456789" for char in serial) < _MIN_DIGITS or not _fits(serial):
        return None
    word = _WORD_BEFORE.search(candidate.before(1) + candidate.text[:1])
    return None if word and not candidate.near(_VEHICLE, before=10) else candidate


def _fits(serial: str) -> bool:
    """Six characters are new energy's, and those follow a pattern of their own."""
    return len(serial) < 6 or not serial.isascii() or bool(_NEW_ENERGY.fullmatch(serial))  # noqa: PLR2004  # as above


RECOGNIZERS = (Recognizer.of("CN_PLATE", _PATTERN, _check),)
