"""E-mail addresses, full-width and percent-encoded ones too."""

import re

from shared.privacy.recognizers.recognizer import Candidate, Recognizer

# Unbounded on purpose: RE2 is linear anyway, and counting to 63 would swell its automaton until it has to start over.
_LETTER = r"0-9A-Za-z\x{c0}-\x{24f}"
_LOCAL = rf"[{_LETTER}_][{_LETTER}_.%+'-]*"
_PATTERN = rf"({_LOCAL}(?:@|%40)(?:[{_LETTER}][{_LETTER}-]*\.)+(?:[A-Za-z]{{2,24}}|xn--[0-9A-Za-z-]+))"
# Chinese follows an address without a blank, so a Chinese domain must end in a top-level domain that exists.
_CHINESE_TOP = "中国|中國|公司|网络|網絡|在线|中文网|集团|香港|台湾|台灣"
_CHINESE = rf"({_LOCAL}@(?:[\p{{Han}}0-9A-Za-z-]+\.)+(?:{_CHINESE_TOP}))"

_RETINA_IMAGE = re.compile(r"@[0-9]x\.", re.IGNORECASE)


def _check(candidate: Candidate) -> Candidate | None:
    return None if _RETINA_IMAGE.search(candidate.text) else candidate


RECOGNIZERS = (
    Recognizer.of("EMAIL", _PATTERN, _check, needs=("@", "%40")),
    Recognizer.of("EMAIL", _CHINESE, _check, needs=("@",)),
)
