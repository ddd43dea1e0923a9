"""E-mail addresses, full-width and percent-encoded ones too."""

import re

from shared.privacy.recognizers.recognizer import Candidate, Recognizer

_LABEL = r"[0-9A-Za-z\x{c0}-\x{24f}](?:[0-9A-Za-z\x{c0}-\x{24f}-]{0,62}[0-9A-Za-z\x{c0}-\x{24f}])?"
_LOCAL = r"[0-9A-Za-z_\x{c0}-\x{24f}][0-9A-Za-z_\x{c0}-\x{24f}.%+'-]{0,63}"
_PATTERN = rf"({_LOCAL}(?:@|%40)(?:{_LABEL}\.){{1,8}}(?:[A-Za-z]{{2,24}}|xn--[0-9A-Za-z-]{{2,59}}))"

_RETINA_IMAGE = re.compile(r"@[0-9]x\.", re.IGNORECASE)


def _check(candidate: Candidate) -> Candidate | None:
    return None if _RETINA_IMAGE.search(candidate.text) else candidate


RECOGNIZERS = (Recognizer.of("EMAIL", _PATTERN, _check, needs=("@", "%40")),)
