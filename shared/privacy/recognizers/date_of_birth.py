"""Dates of birth: a date in any spelling, in a birth context only."""

import re

from shared.privacy.recognizers.recognizer import Candidate, Recognizer

_YEAR = "(?:18|19|20)[0-9]{2}"
_MONTH = "(?:0?[1-9]|1[0-2])"
_DAY = "(?:0?[1-9]|[12][0-9]|3[01])"
_NAME = (
    "(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\.?"
)
_NTH = "(?i:st|nd|rd|th)?"
_HAN = "[〇零○一二三四五六七八九十廿]"
_FORMS = "|".join(
    (
        rf"{_YEAR} ?[-/.] ?{_MONTH} ?[-/.] ?{_DAY}",
        rf"(?:{_YEAR}|[0-9]{{2}}) ?年 ?{_MONTH} ?月(?: ?{_DAY} ?[日号])?",
        rf"{_HAN}{{2,4}}年{_HAN}{{1,2}}月(?:{_HAN}{{1,3}}[日号])?",
        rf"{_DAY} ?[-/.] ?{_DAY} ?[-/.] ?(?:{_YEAR}|[0-9]{{2}})",
        rf"{_NAME} {_DAY}{_NTH},? ?{_YEAR}",
        rf"{_DAY}{_NTH}(?: of)?[ -]?{_NAME},?[ -]?(?:{_YEAR}|[0-9]{{2}})",
        rf"{_NAME},? {_YEAR}",
        rf"{_YEAR}[ -]?{_NAME}[ -]?{_DAY}",
        rf"{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])",
    )
)
_PATTERN = rf"(?:^|[^0-9A-Za-z_.]|(?i:dob|born))({_FORMS})(?:[^0-9A-Za-z_]|[Tt][0-9]|$)"

# A label, then a few words without a figure or the end of a sentence, then the date.
_END = "。\uff1b\uff0c\uff01\uff1f"
_LATIN_LABEL = r"(?:dob|d\.o\.b\.?|birth|born|date[ _-]?of[ _-]?birth|birth[ _-]?da(?:te|y))"
_LABEL = rf"(?:出生(?:日期|年月日?|时间|時間|日|于|於|在)|生日|[诞誕]?生[于於]|(?<![a-z]){_LATIN_LABEL}(?![a-z]))"
_GAP = rf"(?:[^0-9.;{_END}\x1f]|\.(?! )){{0,24}}"
_BIRTH_BEFORE = re.compile(rf"(?:{_LABEL}{_GAP}|出生[^0-9a-z.;{_END}\x1f\u4e00-\u9fff]{{0,6}})\Z")
_BIRTH_AFTER = re.compile(rf"[ (]{{0,2}}(?:出生|诞生|生(?=[,.;)\s于人{_END}]|\Z)|(?:was )?born(?![a-z])|生日)")
_BIRTH_HEADING = re.compile(_LABEL)


def _check(candidate: Candidate) -> Candidate | None:
    birth = (
        _BIRTH_BEFORE.search(candidate.before(48))
        or _BIRTH_AFTER.match(candidate.after(12))
        or _BIRTH_HEADING.search(candidate.heading)
    )
    return candidate if birth else None


RECOGNIZERS = (Recognizer.of("DATE_OF_BIRTH", _PATTERN, _check),)
