"""Chinese passports and travel permits; their numbers carry no check digit, so only beside the word."""

from shared.privacy.recognizers.recognizer import RIGHT, Candidate, Recognizer
from shared.privacy.words import Words

_NUMBER = (
    "(?i:[DEGHKMPS] ?[0-9]{4} ?[0-9]{4}|E ?[A-HJ-NP-Z] ?[0-9]{3} ?[0-9]{4}|[DSP] ?E ?[0-9]{7}|[DSP] ?[0-9]{7}|"
    "1[45][0-9]{7})"
)
_PATTERN = rf"(?:^|[^0-9A-Za-z_]|(?i:passport|no))({_NUMBER}){RIGHT}"

_PASSPORT = Words.of("护照 護照 passport passports passport_no passport_number passportno")


def _check(candidate: Candidate) -> Candidate | None:
    labelled = candidate.near(_PASSPORT, before=32, after=12) or _PASSPORT.search(candidate.heading)
    return candidate if labelled else None


RECOGNIZERS = (Recognizer.of("CN_PASSPORT", _PATTERN, _check, needs=("护照", "護照", "assport", "ASSPORT")),)
