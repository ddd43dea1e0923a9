"""Telephone numbers: Chinese mobiles and landlines, North American ones, any country's with its code or a label."""

import re

from shared.privacy.recognizers.numbering import is_dialable, is_dialable_locally
from shared.privacy.recognizers.recognizer import LEFT_OF_DIGITS, RIGHT_OF_DIGITS, Candidate, Check, Recognizer
from shared.privacy.words import Words

_GAP = r"(?:[ -]{1,2}|\r?\n)"
_PLUS = r"(?:\+|%2[Bb]|00)"
_COUNTRY = rf"(?:\({_PLUS}?86\)|{_PLUS}?86)[ -]{{0,2}}"
_MOBILE = "|".join(
    (
        "1[3-9][0-9]{9}",
        rf"1[3-9][0-9]{_GAP}?[0-9]{{4}}{_GAP}?[0-9]{{4}}",
        r"1[3-9][0-9]\.[0-9]{4}\.[0-9]{4}",
        rf"1[3-9][0-9]{{2}}{_GAP}[0-9]{{3}}{_GAP}[0-9]{{4}}",
        rf"1[3-9][0-9]{_GAP}[0-9]{{3}}{_GAP}[0-9]{{5}}",
        rf"1[3-9][0-9]{{3}}{_GAP}[0-9]{{6}}",
    )
)
_AREA = "(?:10|2[0-57-9]|[3-9][0-9]{2})"
_LOCAL = "[2-8][0-9]{2,3}[ -]?[0-9]{4}"
_LANDLINE = "|".join(
    (
        rf"(?:{_COUNTRY})?\(0?{_AREA}\)[ -]?{_LOCAL}",
        rf"(?:{_COUNTRY})?0{_AREA}{_GAP}{_LOCAL}",
        rf"{_COUNTRY}0?{_AREA}[ -]?{_LOCAL}",
        "85[23]-[235689][0-9]{3}[ -]?[0-9]{4}",
    )
)
_LANDLINE_UNGROUPED = rf"0{_AREA}[2-8][0-9]{{6,7}}"
_EXCHANGE = "[2-9][0-9]{2}"
_NANP = "|".join(
    (
        rf"(?:\+?1[ .-]?)?\([2-9][0-8][0-9]\)[ -]?{_EXCHANGE}[ .-][0-9]{{4}}",
        rf"(?:\+?1[ -])?[2-9][0-8][0-9][ -]{_EXCHANGE}[ -][0-9]{{4}}",
        rf"(?:\+?1\.)?[2-9][0-8][0-9]\.{_EXCHANGE}\.[0-9]{{4}}",
    )
)
_INTERNATIONAL = r"(?:\((?:\+|00)[1-9][0-9]{0,3}\)|(?:\+|00|011[ -])[1-9])[0-9 .()-]{5,24}[0-9]"
_IN_GROUPS = re.compile(r"(?:\([+0-9]{2,6}\)|[+0-9]+)(?:(?:[ .-]|\(0\)|[ ]?[()][ ]?){0,2}[0-9]+)*")
_LABEL = (
    r"(?i:电话|電話|手机号?码?|手機號?碼?|座机|座機|固话|联系方式|聯絡方式|号码|號碼|致电|致電|拨打|撥打|回电|来电|传真|傳真|热线|tel|telephone|phone|mobile|cell|cellphone|"
    r"fax|call(?: me| us)?|whatsapp|callback|direct line|contact|reach(?: me| us| him| her)?|text(?: me)?|sms)"
)
_LABELLED = (
    rf"{_LABEL}(?i:s|[ ]?(?:no|number|num|#)\.?)?[\"' ]{{0,2}}(?i:[:=]|是|为|至|(?:is|at|on|to)[ :])?[\"' ]{{0,2}}"
    r"(\(?[0-9](?:[ .()-]{0,2}[0-9]){6,14})(?:[^0-9A-Za-z_]|$)"
)

_TELEPHONE = Words.of(
    "电话 電話 手机 手機 座机 固话 致电 致電 拨打 回电 来电 传真 傳真 联系 聯絡 热线 号码 號碼 打 "
    "tel telephone phone mobile fax call callback contact"
)
_DIGITS_BEFORE = re.compile(r"[0-9][.,]\Z|[0-9a-z]-\Z|[0-9]/\Z")
_JOINED_BY_SLASH = re.compile(r"[0-9]{7,}/\Z")
_LABEL_DASH = re.compile(r"(?:tel|phone|mobile|cell|fax|contact)-\Z")
_AMOUNT_AFTER = re.compile(r"[.,][0-9]|-[0-9]{6,}|-[0-9]{1,5}[-0-9a-z]|/[0-9]{1,4}(?![0-9])")
_FIGURE_BEFORE = re.compile(r"[0-9] \Z")
_FIGURE_AFTER = re.compile(r" [0-9]")
_MIN_DIGITS = 7
_CHINESE_MOBILE = re.compile("1[3-9][0-9]{9}")
_DATE = re.compile(r"(?:19|20)[0-9]{2}[ .-]?(?:0[1-9]|1[0-2])[ .-]?(?:0[1-9]|[12][0-9]|3[01])\Z")


def _stands_alone(candidate: Candidate) -> Candidate | None:
    """Refuse parts of decimals, amounts, UUIDs and part numbers; an extension behind a hyphen is fine."""
    before = candidate.before(16)
    joined = _DIGITS_BEFORE.search(before) and not (_LABEL_DASH.search(before) or _JOINED_BY_SLASH.search(before))
    if joined or _AMOUNT_AFTER.match(candidate.after(8)):
        return None
    return candidate if candidate.borders_are_clear else None


def _ungrouped_landline(candidate: Candidate) -> Candidate | None:
    return _stands_alone(candidate) if candidate.near(_TELEPHONE, before=20, after=4) else None


def _nanp(candidate: Candidate) -> Candidate | None:
    """Three groups among more figures are a row of a table, unless a label says otherwise."""
    among_figures = _FIGURE_BEFORE.search(candidate.before(2)) or _FIGURE_AFTER.match(candidate.after(2))
    if " " in candidate.text and among_figures and not candidate.near(_TELEPHONE, before=20):
        return None
    return _stands_alone(candidate)


def _international(candidate: Candidate) -> Candidate | None:
    grouped = _IN_GROUPS.match(candidate.text)
    if not grouped or _DIGITS_BEFORE.search(candidate.before(2)):
        return None
    return next((part for part in _prefixes(candidate.first(grouped.end())) if is_dialable(part.text)), None)


def _labelled(candidate: Candidate) -> Candidate | None:
    if _CHINESE_MOBILE.fullmatch(candidate.text):  # most of what stands behind a label, and cheap to tell
        return candidate
    return next((part for part in _prefixes(candidate) if _is_local_number(part)), None)


def _is_local_number(candidate: Candidate) -> bool:
    return not _DATE.match(candidate.text) and is_dialable_locally(candidate.text)


def _prefixes(candidate: Candidate) -> list[Candidate]:
    """The candidate and what is left of it without its last groups, longest first: they may belong to what follows."""
    text = candidate.text
    ends = [match.end() for match in re.finditer(r"[0-9]+", text)]
    return [candidate.first(end) for end in reversed(ends) if sum(map(str.isdigit, text[:end])) >= _MIN_DIGITS]


def _recognizer(pattern: str, check: Check = _stands_alone) -> Recognizer:
    return Recognizer.of("PHONE", f"{LEFT_OF_DIGITS}({pattern}){RIGHT_OF_DIGITS}", check)


RECOGNIZERS = (
    _recognizer(rf"(?:{_COUNTRY})?(?:{_MOBILE})"),
    _recognizer(_LANDLINE),
    _recognizer(_LANDLINE_UNGROUPED, _ungrouped_landline),
    _recognizer(_NANP, _nanp),
    _recognizer(_INTERNATIONAL, _international),
    Recognizer.of("PHONE", _LABELLED, _labelled),
)
