"""IPv4 and IPv6 addresses, told from version and section numbers."""

import ipaddress
import re

from shared.privacy.recognizers.recognizer import Candidate, Recognizer
from shared.privacy.words import Words

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_V4 = rf"(?:^|[^0-9A-Za-z_.]|\\[nrt]|ip|IP)({_OCTET}(?:\.{_OCTET}){{3}})(?:[^0-9A-Za-z_.]|\.(?:[^0-9]|$)|$)"
_V6 = (
    r"(?:^|[^0-9A-Za-z_:.]|ip|IP)([0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,9}(?:\.[0-9]{1,3}){0,3})"
    r"(?::[0-9]{5})?(?:[^0-9A-Za-z_:]|$)"
)

_VERSION = Words.of(
    "版本 固件 升级到 升级至 更新到 更新至 回滚到 回退到 软件 内核 驱动 补丁 "
    "version versions ver release releases build firmware kernel driver patch rev revision"
)
_NETWORK = Words.of(
    "ip ipv4 ipv6 地址 服务器 主机 网关 来源 登录 节点 设备 终端 客户端 网段 访问 连接 路由 "
    "address addr host server gateway ping from port dns node device client router switch peer subnet nameserver "
    "endpoint ssh"
)
_SECTION_AFTER = re.compile(r"\s?(?:[章节条款版]|正式版|beta|rc[0-9])")
_SECTION_BEFORE = re.compile(
    r"(?:第|§|[章节条款表图]|附录|(?<![a-z])(?:section|sec|chapter|clause|table|figure|fig|appendix)\.?)\s?\Z"
)
_SLICE_BEFORE = re.compile(r"[a-z0-9_)\]]\[\Z")
_PORT_AFTER = re.compile(r"\]:[0-9]")
_MIN_GROUPS = 3


def _check_v4(candidate: Candidate) -> Candidate | None:
    if _SECTION_BEFORE.search(before := candidate.before(28)) or _SECTION_AFTER.match(candidate.after(2)):
        return None
    versions = list(_VERSION.pattern.finditer(before))
    networks = list(_NETWORK.pattern.finditer(before))
    if versions and (not networks or networks[-1].end() <= versions[-1].start()):
        return None
    return candidate


def _check_v6(candidate: Candidate) -> Candidate | None:
    """A colon in front may end a label, one behind may begin a port or what is said about it."""
    port = len(candidate.text) - candidate.text.rfind(":")
    narrower = ((0, 0), (1, 0), (0, 1), (1, 1), (0, port), (1, port))
    spellings = (candidate.without(first, last) for first, last in narrower)
    found = next((spelling for spelling in spellings if _is_v6(spelling.text)), None)
    return found if found and _is_address(found) else None


def _is_v6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_address(candidate: Candidate) -> bool:
    """`a::b` is also how C++ and slices are written; demand more than one short group and a digit."""
    if _SLICE_BEFORE.search(candidate.before(2)):
        return False
    if candidate.before(1) == "[" and _PORT_AFTER.match(candidate.after(3)):
        return True
    groups = [group for group in candidate.text.split(":") if group]
    if "::" not in candidate.text and max(map(len, groups)) < 2:  # noqa: PLR2004  # a ratio
        return candidate.near(_NETWORK, before=16)
    has_digit = any(char.isdigit() for char in candidate.text)
    telling = len(groups) >= _MIN_GROUPS or any(len(group) >= _MIN_GROUPS for group in groups)
    return bool(groups) and ((telling and has_digit) or candidate.near(_NETWORK, before=16))


RECOGNIZERS = (
    Recognizer.of("IP_ADDRESS", _V4, _check_v4, needs=(".",)),
    Recognizer.of("IP_ADDRESS", _V6, _check_v6, needs=(":",)),
)
