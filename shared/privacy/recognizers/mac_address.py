"""Hardware addresses: six pairs with colons, hyphens or dots, or three groups of four with dots."""

from shared.privacy.recognizers.recognizer import Candidate, Recognizer

_PAIR = "[0-9A-Fa-f]{2}"
_QUAD = "[0-9A-Fa-f]{4}"
_FORMS = rf"{_PAIR}(?::{_PAIR}){{5}}|{_PAIR}(?:-{_PAIR}){{5}}|{_PAIR}(?:\.{_PAIR}){{5}}|{_QUAD}\.{_QUAD}\.{_QUAD}"
_PATTERN = rf"(?:^|[^0-9A-Za-z_:.-]|[:=]|(?i:mac)[ :-]?)({_FORMS})(?:[^0-9A-Za-z_:.-]|[.:-](?:[^0-9A-Fa-f]|$)|$)"


def _check(candidate: Candidate) -> Candidate | None:
    """Four-digit groups of figures alone are amounts or versions."""
    return candidate if len(candidate.text) == 17 or not candidate.alphanumerics.isdigit() else None  # noqa: PLR2004


RECOGNIZERS = (Recognizer.of("MAC_ADDRESS", _PATTERN, _check),)
