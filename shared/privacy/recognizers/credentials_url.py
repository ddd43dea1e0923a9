"""URLs that carry a password or token in front of their host: one value from the scheme to the end of the query."""

import re
from dataclasses import replace

from shared.privacy.recognizers.recognizer import Candidate, Recognizer

_URL_CHAR = r"[0-9A-Za-z._~:/?#\[\]@!$&()*+,;=%^|{}-]"
_USER_INFO = r"[0-9A-Za-z._~!$&()*+,;=%^:|{}@-]{1,256}"
_PATTERN = rf"(?:^|[^0-9A-Za-z+.-])([A-Za-z][A-Za-z0-9+.-]{{1,30}}://{_USER_INFO}@{_URL_CHAR}{{1,200}})"

_REST = re.compile(_URL_CHAR.encode() + b"*")
_TOKEN_ALONE = re.compile(r"[^:@]{16,}")
_CLOSING = {")": "(", "]": "[", "}": "{"}


def _check(candidate: Candidate) -> Candidate | None:
    url = candidate.text
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    user_info, at, host = authority.rpartition("@")
    secret = ":" in user_info or _TOKEN_ALONE.fullmatch(user_info)
    return _to_its_end(candidate) if at and host and secret else None


def _to_its_end(candidate: Candidate) -> Candidate:
    """The pattern is bounded, or refused candidates would make the search quadratic; the URL is not."""
    rest = _REST.match(candidate.view.data, candidate.end)
    whole = replace(candidate, end=rest.end() if rest else candidate.end)
    return whole.first(len(_without_closing_punctuation(whole.text)))


def _without_closing_punctuation(url: str) -> str:
    """Cut what ends the sentence or closes a bracket opened before the URL."""
    surplus = {closing: url.count(closing) - url.count(opening) for closing, opening in _CLOSING.items()}
    end = len(url)
    while surplus.get(url[end - 1], 0) > 0 or url[end - 1] in ".,;:!?*":
        end -= 1
        surplus[url[end]] = surplus.get(url[end], 0) - 1
    return url[:end]


RECOGNIZERS = (Recognizer.of("URL_WITH_CREDENTIALS", _PATTERN, _check, needs=("://",)),)
