"""Keys, tokens and passwords: by the issuer's prefix, by their shape, or by the label in front."""

import base64
import binascii
import re

from shared.privacy.recognizers.recognizer import LEFT, Candidate, Recognizer
from shared.privacy.words import one_of

_WORD = "[0-9A-Za-z_-]"
_ISSUED = "|".join(
    (
        rf"(?:sk|pk|rk|tm)[-_](?:live|test|prod|proj|ant|or|svcacct|admin)[-_]{_WORD}{{12,}}",
        rf"sk-{_WORD}{{16,}}",
        "(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[0-9A-Z]{16}",
        "gh[pousr]_[0-9A-Za-z]{20,}|github_pat_[0-9A-Za-z_]{20,}",
        rf"gl(?:pat|ptt|rt|dt|soat|cbt)-{_WORD}{{16,}}",
        r"xox[abeoprs]-[0-9A-Za-z-]{10,}|xapp-[0-9A-Za-z-]{10,}",
        rf"AIza{_WORD}{{30,}}|ya29\.{_WORD}{{20,}}|GOCSPX-{_WORD}{{20,}}",
        rf"SG\.{_WORD}{{16,}}\.{_WORD}{{16,}}",
        r"npm_[0-9A-Za-z]{30,}|pypi-[0-9A-Za-z_-]{30,}|hf_[0-9A-Za-z]{20,}",
        r"dop_v1_[0-9a-f]{40,}|dckr_pat_[0-9A-Za-z_-]{20,}",
        r"LTAI[0-9A-Za-z]{12,26}|AKID[0-9A-Za-z]{28,40}",
        rf"eyJ{_WORD}{{8,}}\.{_WORD}{{4,}}(?:\.{_WORD}+){{0,3}}",
    )
)
_ARMOUR = "[0-9A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = rf"(-----BEGIN {_ARMOUR}[^-]+-----END {_ARMOUR})"
_BEARER = r"(?:^|[^0-9A-Za-z_])(?i:bearer)[ :]{1,3}([0-9A-Za-z._~+/-]{8,}=*)"
_BASIC = r"(?:^|[^0-9A-Za-z_])(?i:basic)[ ]{1,3}([0-9A-Za-z+/_-]{6,}={0,2})"

_PASSWORD = "密码|密碼|口令|(?i:password|passwd|passphrase|passcode|pwd|pass)"  # noqa: S105  # labels, no password
_KEY = (
    r"密钥|密鑰|秘钥|令牌|授权码|(?i:secret|token|apikey|credentials?|"
    r"(?:api|access|secret|private|auth|account|encryption|signing|session)[ _-]?key(?:[ _-]?id)?)"
)
_VERB = (
    "是|为|改为|改成|重置为|设为|设置为|更新为|更改为|"
    "(?i:(?:is |was |been )?(?:reset|set|changed|updated) to|is|was|to)"
)
_OF = r"(?: (?:for|of|on)(?: [0-9A-Za-z_.@-]{1,24}){1,4})?"  # for the router
_IS = (
    rf"""["'`]?(?: ?\([^()]{{1,24}}\))?{_OF}\s{{0,3}}"""
    rf"""(?:(?:{_VERB})?\s{{0,2}}(?:[:=]|=>|:=)|{_VERB})\s{{0,3}}"""
)
_VALUE = r"""(["'`]?[!#-&(-;=?-_a-~]{4,256})"""
_PASSWORD_PATTERN = rf"(?:{_PASSWORD}){_IS}{_VALUE}"
_KEY_PATTERN = rf"(?:{_KEY}){_IS}{_VALUE}"
_PASSWORD_BLANK_PATTERN = rf"(?:(?:{_PASSWORD})[ ]|密码|密碼|口令)([!#-&(-9?-Z^_a-z|~][!#-&(-;=?-Z^_a-z|~]{{5,63}})"
_KEY_BLANK_PATTERN = r"(?i:(?:api|access|secret|auth)[ _-]?key|token|密钥|令牌)[ ]([0-9A-Za-z_+/=.-]{16,256})"

_NEXT_FIELD = re.compile(r"[,;&|](?=[A-Za-z_]{2,24}[=:])|[)\]](?=[\](])")  # or the end of a Markdown link
_PLAIN_WORDS = one_of(
    "required optional none null nil true false string text password passwd secret token example invalid incorrect "
    "wrong expired missing empty reset changed hidden redacted masked default unknown undefined not must should "
    "please here your this that there auth bearer basic field input forgot protected correct changeme"
)
# Variables, templates, calls and the names of types stand where a value will stand later.
_TEMPLATE = re.compile(r"[$%{<\[]|os\.|env|process\.|self\.|config|settings|[A-Za-z_.0-9]+[(\[]|(?:[A-Z][a-z]+){2,}\Z")
_REPEATED = re.compile(r"(.)\1+")
_MIN_KEY = 8
_MIN_PASSWORD = 4
_MIN_WORD = 6


def _accept(candidate: Candidate) -> Candidate | None:
    return candidate


def _basic(candidate: Candidate) -> Candidate | None:
    """`Basic` is also a word; user and password behind it are base64 of something with a colon."""
    encoded = candidate.text
    try:
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return candidate if b":" in decoded else None


def _bearer(candidate: Candidate) -> Candidate | None:
    value = _trimmed(candidate)
    return value if _is_mixed(value.text) else None


def _password(candidate: Candidate) -> Candidate | None:
    value = _trimmed(candidate)
    return value if len(value.text) >= _MIN_PASSWORD and _is_password(value) else None


def _evident_password(candidate: Candidate) -> Candidate | None:
    """Behind a mere blank, only what cannot be the next word: letters, figures and a sign or an inner capital."""
    value = _trimmed(candidate)
    figures = any(char.isdigit() for char in value.text)
    prose = re.sub("[0-9]", "", value.text)
    return value if figures and _is_mixed(prose) and _password(candidate) else None


def _is_password(value: Candidate) -> bool:
    text = value.text
    if _is_no_value(text):
        return False
    if text.isdigit() or _is_mixed(text):
        return True
    quoted = value.before(1) in {'"', "'", "`"}
    labelled_in_chinese = value.before(8).isascii() is False
    return text.isalnum() and len(text) >= _MIN_WORD and (quoted or labelled_in_chinese)


def _key(candidate: Candidate) -> Candidate | None:
    value = _trimmed(candidate)
    long_enough = len(value.text) >= _MIN_KEY and not value.text.replace(".", "").isdigit()
    telling = _is_mixed(value.text) and any(char.isdigit() for char in value.text)
    return value if long_enough and telling and not _is_no_value(value.text) else None


def _is_no_value(text: str) -> bool:
    return bool(text.lower() in _PLAIN_WORDS or _TEMPLATE.match(text) or _REPEATED.fullmatch(text))


def _is_mixed(text: str) -> bool:
    """Letters with figures, with odd signs, or in both cases inside a word: what people do not write as prose."""
    letters = any(char.isalpha() for char in text)
    figures = any(char.isdigit() for char in text)
    signs = any(char in "!@#$%^&*+~?|=" for char in text)
    inner_capital = any(char.isupper() for char in text[1:]) and any(char.islower() for char in text)
    return letters and (figures or signs or inner_capital)


def _trimmed(candidate: Candidate) -> Candidate:
    """Without an opening quote, the next field of a query or a list, and the punctuation that closes a sentence."""
    text = candidate.text
    if quote := text[:1] if text[:1] in "\"'`" else "":
        candidate = Candidate(candidate.view, candidate.start + 1, candidate.end)
        text = text[1:].partition(quote)[0]
    text = text[: match.start()] if (match := _NEXT_FIELD.search(text)) else text
    return candidate.first(len(text.rstrip(".,;:)]}")))


RECOGNIZERS = (
    Recognizer.of("SECRET", rf"{LEFT}({_ISSUED})", _accept),
    Recognizer.of("SECRET", _PRIVATE_KEY, _accept, needs=("PRIVATE KEY",)),
    Recognizer.of("SECRET", _BEARER, _bearer, needs=("earer", "EARER")),
    Recognizer.of("SECRET", _BASIC, _basic, needs=("asic ", "ASIC ")),
    Recognizer.of("SECRET", _PASSWORD_PATTERN, _password),
    Recognizer.of("SECRET", _PASSWORD_BLANK_PATTERN, _evident_password),
    Recognizer.of("SECRET", _KEY_PATTERN, _key),
    Recognizer.of("SECRET", _KEY_BLANK_PATTERN, _key),
)
