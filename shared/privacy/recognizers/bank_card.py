"""Payment card numbers (ISO/IEC 7812): 13 to 19 digits, Luhn-valid, in the groups that cards are printed in."""

import re

from shared.privacy.recognizers.recognizer import LEFT_OF_DIGITS, RIGHT_OF_DIGITS, Candidate, Recognizer
from shared.privacy.words import Words

_GAP = r"(?:[ -]|\r?\n)"
_GROUPED = "|".join(
    (
        rf"[0-9]{{4}}(?:{_GAP}[0-9]{{4}}){{3}}{_GAP}[0-9]{{1,3}}",
        rf"[0-9]{{4}}(?:{_GAP}[0-9]{{4}}){{3}}",
        rf"[0-9]{{4}}{_GAP}[0-9]{{6}}{_GAP}[0-9]{{4,5}}",
        rf"[0-9]{{6}}{_GAP}[0-9]{{10,13}}",
    )
)
_CONTIGUOUS = "[3-6][0-9]{12,18}|2[2-7][0-9]{14}"

_CARD = Words.of(
    "卡 账号 帐号 账户 帐户 银联 银行 刷 转入 打入 card cards visa mastercard amex unionpay maestro jcb pan "
    "debit credit account charge_it"
)
_OTHER_NUMBER = re.compile(
    r"(?:单号|编号|流水|条码|序列号?|批次|批号|isbn|ean|imei|tracking|order|serial|reference|ref|trace|batch|"
    r"timestamp|时间戳|epoch)[ ]?(?:number|num|code|id)?[\s#:no.号码为是]{0,6}\Z"
)
_DECIMAL_BEFORE = re.compile(r"[0-9][.,]\Z")
_DIGIT_AFTER = re.compile(r"[.,-]?[0-9]|\.[0-9]")
_BLANK = re.compile(r"[ \r\n-]+")
_LENGTHS = {"3": {14, 15, 16}, "4": {13, 16, 19}, "5": {16, 17, 18, 19}, "6": {16, 17, 18, 19}, "2": {16}}


def passes_luhn(digits: str) -> bool:
    """Check the last digit (ISO/IEC 7812-1, annex B)."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0


def has_issuer_prefix(digits: str) -> bool:
    """Tell whether the leading digits belong to a payment network: 3 to 6, or Mastercard's 2221 to 2720."""
    return digits[0] in "3456" or 2221 <= int(digits[:4]) <= 2720  # noqa: PLR2004  # Mastercard's 2-series


def _is_card(candidate: Candidate) -> bool:
    digits = candidate.alphanumerics
    if not (has_issuer_prefix(digits) and passes_luhn(digits) and len(set(digits)) > 1):
        return False
    if candidate.near(_CARD, before=24, after=8):
        return True
    return len(digits) in _LENGTHS[digits[0]] and not _OTHER_NUMBER.search(candidate.before(16))


def _stands_alone(candidate: Candidate) -> bool:
    if _DECIMAL_BEFORE.search(candidate.before(2)) or _DIGIT_AFTER.match(candidate.after(2)):
        return False
    return candidate.borders_are_clear


def _even_groups(candidate: Candidate) -> bool:
    """One separator throughout; a line break may stand in for it once, or columns of figures would join."""
    gaps = _BLANK.findall(candidate.text)
    breaks = sum("\n" in gap for gap in gaps)
    return breaks <= 1 and len(set(gaps)) - breaks <= 1


def _contiguous(candidate: Candidate) -> Candidate | None:
    return candidate if _stands_alone(candidate) and _is_card(candidate) else None


def _grouped(candidate: Candidate) -> Candidate | None:
    for shorter in _prefixes(candidate):
        if _stands_alone(shorter) and _even_groups(shorter) and _is_card(shorter):
            return shorter
    return None


def _prefixes(candidate: Candidate) -> list[Candidate]:
    """The whole, and the whole without a last group that may belong to what follows (an expiry date)."""
    cut = max(candidate.text.rfind(gap) for gap in " -\n")
    return [candidate, candidate.first(cut)] if cut >= 16 else [candidate]  # noqa: PLR2004  # 13 digits and gaps


RECOGNIZERS = (
    Recognizer.of("BANK_CARD", rf"{LEFT_OF_DIGITS}({_CONTIGUOUS}){RIGHT_OF_DIGITS}", _contiguous),
    Recognizer.of("BANK_CARD", rf"{LEFT_OF_DIGITS}({_GROUPED}){RIGHT_OF_DIGITS}", _grouped),
)
