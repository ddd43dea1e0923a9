"""Chinese postal addresses, from the first place name to the last number."""

import re

from shared.privacy.recognizers.places import CITIES, PROVINCES
from shared.privacy.recognizers.recognizer import Candidate, Recognizer

_HAN = "[一-龥]"  # a single range: RE2 matches it far faster than `\p{Han}`
_NUMBER = r"(?:[0-9]{1,5}|[A-Za-z][0-9]{0,4}|[〇零一二三四五六七八九十百两]{1,5}|[甲乙丙丁])"
_START = (
    rf"(?:(?:{'|'.join(PROVINCES)})(?:省|市|(?:壮族|回族|维吾尔)?自治区|特别行政区)?(?:{_HAN}{{2,7}}?(?:市|自治州|地区|盟))?"
    rf"|(?:{'|'.join(CITIES)})市?)"
)
_DISTRICT = rf"(?:{_HAN}{{1,6}}?(?:区|县|旗|市))?(?:{_HAN}{{1,6}}?(?:街道|镇|乡|开发区|高新区|工业园区?))?"
_STREET = r"(?:路|街|大道|道|巷|弄|胡同|里|村|社区|小区|新村|花园|花苑|公寓|大厦|广场|中心|园区?|苑|城|庄|屯|湾|府|居|坊|堤|圩|组|段|号院)"
_NUMBERED = rf"(?:第?{_NUMBER}(?:-{_NUMBER})*(?:号楼|號樓|号院|号|號|弄|栋|棟|幢|座|单元|楼|樓|层|層|室|房|户|组|队|门|铺|甲|乙|院)(?:之[0-9一二三])?)"
_LAST = rf"(?:{_NUMBERED}|[0-9]{{1,4}}(?:-[0-9]{{1,4}}){{1,3}}|[A-Za-z]?[0-9]{{2,5}})"
_MIDDLE = rf"(?:{_HAN}{{0,10}}?(?:{_STREET})[东西南北中]?[ ]?)"
_BUILDING = rf"[一-龥A-Za-z]{{1,10}}?(?:{_STREET}|大楼|楼|座)(?:{_HAN}{{0,3}}?)"
_TAIL = rf"(?:[ ]?(?:附?{_LAST}|{_BUILDING}[ ]?{_LAST}|[A-Za-z]座|[东西南北中A-Za-z一二三四五六七八九](?:区|院|期|园区|组团)|[东西南北中]{_NUMBERED}))*"
_BODY = rf"{_DISTRICT}{_MIDDLE}{{1,3}}(?:{_HAN}{{0,8}}?{_NUMBERED}){_TAIL}"
_VILLAGE = rf"{_DISTRICT}{_HAN}{{1,8}}?(?:村|庄|屯|组)(?:{_HAN}{{0,4}}?{_NUMBERED})?{_TAIL}"
_LABEL = r"(?:地址|住址|住所|现住|家住|住在|居住(?:地|在)|寄[到往至]|送[到往至]|位于|搬[到至]|户籍(?:地|所在地)?|籍贯|门牌)(?:[:：为是]|在)?[ \"']{0,2}"
_DISTRICT_START = rf"{_HAN}{{2,3}}(?:区|县)"

_ANCHORED = rf"({_START}{_BODY}|{_START}{_HAN}{{2,6}}?(?:区|县|市){_VILLAGE})"
_LABELLED = rf"{_LABEL}((?:{_DISTRICT_START})?{_BODY})"
_UNANCHORED = rf"(?:^|[^一-龥0-9A-Za-z])({_DISTRICT_START}{_BODY})"
_DIGIT_OR_UNIT = re.compile(r"[0-9A-Za-z〇零一二三四五六七八九十]")


def _check(candidate: Candidate) -> Candidate | None:
    return candidate if _DIGIT_OR_UNIT.search(candidate.text) else None


_NEEDS = ("号", "號", "室", "栋", "幢", "楼", "单元", "组", "弄")
RECOGNIZERS = tuple(
    Recognizer.of("ADDRESS", pattern, _check, needs=_NEEDS) for pattern in (_ANCHORED, _LABELLED, _UNANCHORED)
)
