"""Names of persons in Han script: what the tagger finds, mended at its borders, and what labels and greetings announce."""

import re
from collections.abc import Iterator
from itertools import chain

from shared.privacy.fold import WALL, View
from shared.privacy.names import han_words as words
from shared.privacy.names.tagger import tagger
from shared.privacy.recognizers.recognizer import Candidate

_HAN = r"[\u3400-\u4dbf\u4e00-\u9fff]"
_SURNAME = f"(?:{'|'.join(sorted(words.COMPOUND_SURNAMES))}|[{''.join(sorted(words.SURNAMES))}])"
_GIVEN = f"[{''.join(sorted(words.GIVEN))}]"
_BORDER = rf"(?=$|[^\u3400-\u4dbf\u4e00-\u9fff]|[{words.VERBS_BEHIND}]|您好|你好|{words.TITLES})"
_LABELLED = re.compile(
    rf"(?:{words.LABELS}|{_HAN}(?:人|员|师|者|方|工|客|手))[\"'”]?[ ]?(?:[:：=是为叫]|[(（])?[ \"'“]{{0,2}}({_SURNAME}{_GIVEN}{{1,2}}){_BORDER}",
    re.IGNORECASE,
)
_TELLING = re.compile(rf"((?:{'|'.join(sorted(words.TELLING_SURNAMES))}){_GIVEN}{{1,2}})")
_NICKNAME = re.compile("[小阿老]")
_LISTED = re.compile(rf"[、和及与]({_SURNAME}{_GIVEN}{{1,2}})(?=$|[^\u3400-\u4dbf\u4e00-\u9fff])")
_NAME = rf"({_SURNAME}{_GIVEN}{{1,2}})"
_BEFORE = r"(?:^|[^\u3400-\u4dbf\u4e00-\u9fff])"
_CUED = rf"(?:{_BEFORE}|[{words.CUES}]|{words.LABELS})"
_TOLD = (
    re.compile(rf"{_CUED}{_NAME}(?={words.BODY_TITLES})", re.MULTILINE),
    re.compile(rf"{_NAME}(?=[ ]?[(][+(]?[0-9]{{3}}|[ ]?[+]?[0-9]{{7}}|[ ]?[(<][^ <>()@]{{1,40}}@)"),
    re.compile(rf"{_BEFORE}({_SURNAME}{_GIVEN}{{2}})(?=、{_SURNAME}{_GIVEN})", re.MULTILINE),
    re.compile(rf"{_BEFORE}{_NAME}(?=、{_SURNAME}{_GIVEN}{{2}}(?:[^\u3400-\u4dbf\u4e00-\u9fff]|$))", re.MULTILINE),
    re.compile(
        rf"[:][ ]?((?:{'|'.join(sorted(words.COMPOUND_SURNAMES))}){_GIVEN}{{1,2}}|{_SURNAME}{_GIVEN}{{2}})"
        "(?=$|[,\uff0c;\uff1b。 \n\t、(/@])",
        re.MULTILINE,
    ),
    re.compile(
        rf"(?:请|本人|兹有)({_SURNAME}{_GIVEN}{{2}})(?=[{words.VERBS_BEHIND}补轮换把尽协确核联回签提安处配查审批跟])"
    ),
    re.compile(rf"(?:签名|签字|签章|签收)[): ]{{1,2}}{_NAME}(?=$|[^\u3400-\u4dbf\u4e00-\u9fff])", re.MULTILINE),
    re.compile(rf"{_BEFORE}{_NAME}(?=[,\uff0c][ ]?[男女](?:[,\uff0c。;\uff1b性 ]|$))", re.MULTILINE),
    re.compile(rf"@{_NAME}(?=$|[^\u3400-\u4dbf\u4e00-\u9fff])", re.MULTILINE),
    re.compile(rf"(?<![A-Za-z])(?:{words.LATIN_CUES})[ ,:]{{1,2}}{_NAME}{_BORDER}", re.IGNORECASE),
)
_ANY_GIVEN = rf"(?:(?![{words.NO_GIVEN}]){_HAN})"
_FIELD = re.compile(
    rf"(?:{words.FIELDS})[\"'”]?[ ]?[:=\t][ \"'“]{{0,2}}({_SURNAME}{_ANY_GIVEN}{{1,2}})(?=$|[^\u3400-\u4dbf\u4e00-\u9fff])"
)
_CELL = re.compile(rf"(?:^|[,|\t;\"'])[ ]?({_SURNAME}{_GIVEN}{{1,2}})[ ]?(?=$|[,|\t;\"'])")
_LINE = re.compile(r"[^\n]+")
_ADDRESSED = re.compile(
    rf"(?:^|[\n。！？!?；;\"“”(（>]|[:：][ ]?|尊敬的|亲爱的|敬爱的|您好[，,]?|你好[，,]?)[ ]*({_SURNAME}(?:{words.TITLES}))"
    rf"(?=[ ]?(?:您好|你好|早上好|上午好|下午好|晚上好|早|[,，:：!！]))",
    re.MULTILINE,
)
_SENTENCE = re.compile(r"[^\n\r。！？!?；;\x1f]{1,160}")
_TRIMMED = re.compile(rf"{_HAN}+(?:[·•]{_HAN}+)*")
_HAS_HAN = re.compile(_HAN)
_NO_PERSON = re.compile(words.NO_PERSON_BEHIND)
_CONTACT = re.compile(r"[0-9]{7}|@|[0-9]{3}[ -][0-9]{4}")
_LONGEST = 4
_Span = tuple[int, int]


class HanNames:
    """Finds PERSON in Han script. Loads the tagger at its first Chinese text."""

    @property
    def entity(self) -> str:
        """What it finds."""
        return "PERSON"

    @staticmethod
    def find(view: View) -> Iterator[Candidate]:
        """Yield names in order."""
        text = view.data.decode(errors="ignore")
        if not _HAS_HAN.search(text):
            return
        offset = index = 0
        for start, end in _names(text):
            offset += len(text[index:start].encode())
            length = len(text[start:end].encode())
            yield Candidate(view, offset, offset + length)
            offset, index = offset + length, end


def _names(text: str) -> list[_Span]:
    """Return disjoint spans; what a greeting or a label announces goes before what the tagger says."""
    covered, found = bytearray(len(text)), list[_Span]()
    for start, end in chain(_addressed(text), _labelled(text), _tagged(text), _cells(text)):
        if not any(covered[start:end]):
            covered[start:end] = b"1" * (end - start)
            found.append((start, end))
    return sorted(found)


def _addressed(text: str) -> Iterator[_Span]:
    return (match.span(1) for match in _ADDRESSED.finditer(text))


def _labelled(text: str) -> Iterator[_Span]:
    for pattern in (_FIELD, _LABELLED, _LISTED, _TELLING, *_TOLD):
        for match in pattern.finditer(text):
            start, end = match.start(1), _end_of_given(text, *match.span(1))
            wrong = match[1][:2] in words.NOT_NAMES or match[1] in words.NOT_NAMES
            if end - start > 1 and not wrong and not _NO_PERSON.match(text, end):
                yield start, end


def _end_of_given(text: str, start: int, end: int) -> int:
    """Give back a last character that begins the word behind: `刘婷发现`."""
    return end - 1 if end - start > 2 and text[end - 1 : end + 1] in words.GIVEN_WORDS else end  # noqa: PLR2004  # a surname and one more


def _cells(text: str) -> Iterator[_Span]:
    """Cells of tables: names where the same line holds a number or an address to reach somebody by."""
    for line in _LINE.finditer(text):
        if _CONTACT.search(line[0]):
            for match in _CELL.finditer(line[0]):
                if match[1] not in words.NOT_NAMES:
                    yield line.start() + match.start(1), line.start() + match.end(1)


def _tagged(text: str) -> Iterator[_Span]:
    sentences = [match for match in _SENTENCE.finditer(text) if _HAS_HAN.search(match[0])]
    if not sentences:
        return
    for match, spans in zip(sentences, tagger().persons([match[0] for match in sentences]), strict=True):
        for start, end in spans:
            name = _TRIMMED.search(match[0], start, end)
            if name:
                mended = _mended(text, match.start() + name.start(), match.start() + name.end())
                if mended and not _NO_PERSON.match(text, mended[1]):
                    yield mended


def _mended(text: str, start: int, end: int) -> _Span | None:
    """Move the borders the tagger set one character off; None for what is no name."""
    name = text[start:end]
    starts_well = name[0] in words.SURNAMES or name[:2] in words.COMPOUND_SURNAMES
    if not starts_well and len(name) <= 2 and text[start - 1 : start] in words.SURNAMES and start:  # noqa: PLR2004  # a given name
        start -= 1
    elif len(name) == _LONGEST and name[:2] not in words.COMPOUND_SURNAMES and name[1] in words.SURNAMES:
        start += 1
    elif starts_well and len(name) == 2 and _given_goes_on(text, end):  # noqa: PLR2004  # half a name
        end += 1
    name = text[start:end]
    plausible = len(name) > 2 or name[0] in words.SURNAMES or _NICKNAME.match(name)  # noqa: PLR2004  # as above
    too_long = len(name) > _LONGEST and name.isalpha() and name[0] in words.SURNAMES
    return (
        (start, end)
        if len(name) > 1 and plausible and not too_long and name not in words.NOT_NAMES and WALL not in name
        else None
    )


def _given_goes_on(text: str, end: int) -> bool:
    following, border = text[end : end + 1], text[end + 1 : end + 2]
    ends = not _HAS_HAN.match(border) or border in words.VERBS_BEHIND
    return following in words.GIVEN and ends
