"""Names of persons in Latin script: a given name before a family name, pinyin, and whatever stands behind a title or label.

Given and family names are those of the United States census of 1990 (public domain) and common ones of other languages.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared.privacy.fold import View
from shared.privacy.recognizers.recognizer import Candidate
from shared.privacy.words import one_of

_FOLDER = Path(__file__).parent

_WORD = (
    r"(?:Mc|Mac|O['’]|D['’])?[A-ZÀ-ÖØ-Þ](?:[a-zß-öø-ÿłńśźżćęąšžčřěů]+|[A-ZÀ-ÖØ-Þ]+)(?:['’-][A-ZÀ-Þ]?[a-zß-ÿ]+|-[A-Z]+)?"
)
_CHAIN = re.compile(
    rf"(?<![A-Za-z0-9_@./\\-]){_WORD}(?:[ \t](?:[A-Z]\.?(?![A-Za-z'’])|{_WORD})){{0,5}}(?![A-Za-z0-9_@]|\.[a-z])"
)
_PART = re.compile(r"[^ \t]+")
_TITLE = re.compile(
    r"(?:^|[^a-z])(?:mr|mrs|ms|miss|mx|dr|prof|professor|doctor|sir|madam|sister|herr|frau|mme|señora?)\.?[ ]\Z"
)
_GREETING = re.compile(r"(?:^|[^a-z])(?:hi|hello|dear|hey|thanks)[ ]\Z")
_LABEL = re.compile(
    r"(?:name|姓名|patient|customer|client|contact|caller|owner|guest|employee|applicant|holder|beneficiary|recipient|payee|"
    r"sender|driver|operator|technician|inspector|engineer|nurse|physician|attn|signed|from|to|cc|by|联系人|客户|收件人|负责人|患者)"
    r"[\"']?[ ]?(?:[:：=]|[ ]is)[ \"']{0,2}\Z"
)
_NO_PERSON_BEHIND = one_of(
    "street st avenue ave road rd lane drive boulevard blvd square park bridge river lake mountain beach bay island airport "
    "station hospital clinic university college school institute museum library church hotel inn restaurant cafe bank group "
    "inc ltd llc corp corporation company co gmbh ag plc foundation society association award prize cup theorem law test "
    "syndrome disease scale index method model engine hall house tower building center centre city county state"
)
_ORGANISATIONS = one_of(
    "mercedes_benz santa_claus santa_barbara earl_grey rose_garden holly_bush rob_banks austin_powers dean_list max_speed pearl_harbor "
    "morgan_stanley wells_fargo johnson_controls charles_schwab goldman_sachs eli_lilly ralph_lauren calvin_klein tommy_hilfiger "
    "martha_stewart jack_daniels marks_spencer harley_davidson louis_vuitton hugo_boss philip_morris warner_bros mary_kay paul_smith "
    "john_deere rolls_royce thomas_cook ernst_young booz_allen baker_hughes ford_focus lincoln_navigator yin_yang huang_he chang_jiang"
)
_FAMILIES_TOO = one_of("hall church house law park lake")
_LITTLE_WORDS = one_of("to do so see an my will may in is as at by on or of the and for")
_SYLLABLE = (
    "(?:zh|ch|sh|[bpmfdtnlgkhjqxrzcsyw])?(?:iang|iong|uang|ang|eng|ing|ong|ian|iao|uai|uan|ai|ei|ao|ou|an|en|in|un|ia|ie|iu|"
    "ua|ue|ui|uo|er|a|o|e|i|u|v)"
)
_PINYIN_GIVEN = re.compile(rf"{_SYLLABLE}{_SYLLABLE}\Z")
# Given names of one syllable that are neither an English word nor the second half of a Chinese place or thing.
_PINYIN_GIVEN_SHORT = one_of(
    "wei fang na xiu min jing li qiang lei yang yong yan jie juan tao chao xia ping gang hui ling dan peng hua hong bo fei bin yu hao kai jian "
    "jun fan shuai xu ning lin huan ying xue qian ting xin rui jia kun yi ming qing mei xiang zhen zhi yun yue ying shan shuang bing chen"
)
_PINYIN_FAMILY = one_of(
    "wang li zhang liu chen yang huang zhao wu zhou xu sun ma zhu hu guo he lin gao luo zheng liang xie song tang deng feng han cao "
    "zeng peng xiao cai pan tian dong yuan yu jiang du ye cheng wei su lu ding ren shen yao cui zhong tan fan jin shi liao jia xia "
    "fu fang zou xiong bai meng qin qiu hou yin xue yan lei long tao duan hao kong shao mao chang wan gu lai kang qian ouyang "
    "shangguan situ zhuge sima dongfang xiahou"
)


@cache
def _words(name: str) -> frozenset[str]:
    return one_of((_FOLDER / name).read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class _Part:
    start: int
    end: int
    text: str

    @property
    def word(self) -> str:
        return self.text.lower().replace("’", "'")

    @classmethod
    def of(cls, text: str, start: int) -> "_Part":
        bare = re.sub(r"['’]s\Z", "", text)
        return cls(start, start + len(bare), bare)

    @property
    def is_initial(self) -> bool:
        return len(self.text.rstrip(".")) == 1


class LatinNames:
    """Finds PERSON in Latin script."""

    @property
    def entity(self) -> str:
        """What it finds."""
        return "PERSON"

    @staticmethod
    def find(view: View) -> Iterator[Candidate]:
        """Yield names in order."""
        text = view.data.decode(errors="ignore")
        offset = index = 0
        for match in _CHAIN.finditer(text):
            for start, end in _names(text, match):
                offset += len(text[index:start].encode())
                length = len(text[start:end].encode())
                yield Candidate(view, offset, offset + length)
                offset, index = offset + length, end


def _names(text: str, match: re.Match[str]) -> Iterator[tuple[int, int]]:
    base = match.start()
    parts = [_Part.of(m[0], base + m.start()) for m in _PART.finditer(match[0])]
    before = text[max(0, base - 24) : base].lower()
    first, titled = 0, _TITLE.search(before) is not None
    if len(parts) > 1 and _TITLE.search(f" {parts[0].word} "):
        parts, titled = parts[1:], True
    if _GREETING.search(before + match[0][: parts[-1].start - base].lower()) and _greeted(text, parts[-1]):
        yield parts[-1].start, parts[-1].end
        return
    if titled or _LABEL.search(before):
        size = _whole(parts, titled=titled)
        if size:
            yield parts[0].start, parts[size - 1].end
            first = size
    while first < len(parts):
        size = _size(parts[first:])
        if size:
            yield parts[first].start, parts[first + size - 1].end
        first += size or 1


def _whole(parts: Sequence[_Part], *, titled: bool) -> int:
    """Return how many of `parts`, which a title or label announces, are a name; ordinary words are none."""
    size = int(titled)
    while size < min(len(parts), 4) and _may_be_part(parts[size], first=not size):
        size += 1
    while size and parts[size - 1].is_initial:
        size -= 1
    listed = _known() if size > 1 else _words("given_names.txt")
    known = titled or any(part.word in listed for part in parts[:size])
    return size if known and not _continues(parts, size) else 0


def _greeted(text: str, first: _Part) -> bool:
    """Whether a given name alone is spoken to: `Hi Susan,`."""
    return first.word in _words("given_names.txt") - _words("common_words.txt") and text[
        first.end : first.end + 1
    ] in set(",:!.\n")


def _may_be_part(part: _Part, *, first: bool) -> bool:
    ordinary = part.word in _words("common_words.txt")
    return part.is_initial or not ordinary or (not first and part.word in _words("family_names.txt"))


def _known() -> frozenset[str]:
    return _words("given_names.txt") | _words("family_names.txt")


def _size(parts: Sequence[_Part]) -> int:
    """Return how many of the first `parts` are a name: given name, initials, family name."""
    last = 1
    while last < len(parts) and last < 3 and parts[last].is_initial:  # noqa: PLR2004  # two initials
        last += 1
    if last >= len(parts):
        return 0
    given, family = parts[0].word, parts[last].word
    if f"{given}_{family}" in _ORGANISATIONS:
        return 0
    if not (_is_name(given, family, initials=last > 1) or _is_pinyin(given, family)):
        return 0
    size = last + 1
    if size < len(parts) and parts[size].word in _words("family_names.txt") - _words("common_words.txt"):
        size += 1  # two given names, or two family names
    return 0 if _continues(parts, size) else size


def _is_name(given: str, family: str, *, initials: bool) -> bool:
    common = _words("common_words.txt")
    if initials and not {given, family} & (common | _NO_PERSON_BEHIND) and {given, family} & _known():
        return True
    if given not in _words("given_names.txt") or given in _PLACES or family in _NO_PERSON_BEHIND - _FAMILIES_TOO:
        return False
    listed = all(part in _words("family_names.txt") for part in family.split("-"))
    return listed and not (family in common and (given in common or family in _LITTLE_WORDS))


def _is_pinyin(first: str, second: str) -> bool:
    families = _PINYIN_FAMILY
    if {first, second} & _PLACES:
        return False
    if (first in families and second in _PINYIN_GIVEN_SHORT) or (second in families and first in _PINYIN_GIVEN_SHORT):
        return True
    return any(
        family in families and _PINYIN_GIVEN.match(given) is not None
        for family, given in ((first, second), (second, first))
    )


_PLACES = one_of(
    "beijing shanghai nanjing hangzhou suzhou wuhan tianjin shenzhen xiamen jinan dalian wuxi fuzhou hefei kunming lanzhou taipei macau "
    "haikou china taiwan hong"
)


def _continues(parts: Sequence[_Part], size: int) -> bool:
    """Whether what follows makes it the name of a street, a company or the like."""
    return size < len(parts) and parts[size].word.rstrip(".") in _NO_PERSON_BEHIND
