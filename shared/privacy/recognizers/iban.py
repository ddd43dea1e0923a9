"""International bank account numbers (ISO 13616): length per country, MOD 97."""

import re

from shared.privacy.recognizers.recognizer import LEFT, Candidate, Recognizer

_LENGTHS = {
    entry[:2]: int(entry[2:])
    for entry in re.findall(
        "[A-Z]{2}[0-9]{2}",
        "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24FI18FK18FO18FR27"
        "GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22"
        "MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28"
        "TL23TN24TR26UA29VA22VG24XK20YE30",
    )
}
_COUNTRY = "|".join(_LENGTHS)
_PATTERN = rf"(?:{LEFT}|(?i:iban))((?i:{_COUNTRY})[0-9]{{2}}(?:[ -]?[0-9A-Za-z]){{11,30}})"
_CHARACTER = re.compile("[0-9A-Za-z]")


def is_iban(number: str) -> bool:
    """Check length and MOD 97 of a number in upper case without blanks."""
    rearranged = "".join(str(int(char, 36)) for char in number[4:] + number[:4])
    return len(number) == _LENGTHS.get(number[:2]) and int(rearranged) % 97 == 1


def _check(candidate: Candidate) -> Candidate | None:
    """Cut to the country's length: what follows a blank may be the next word."""
    length = _LENGTHS[candidate.text[:2].upper()]
    ends = [match.end() for match in _CHARACTER.finditer(candidate.text)]
    if len(ends) < length:
        return None
    number = candidate.first(ends[length - 1])
    return number if is_iban(number.alphanumerics) and not _CHARACTER.match(number.after(1)) else None


RECOGNIZERS = (Recognizer.of("IBAN", _PATTERN, _check),)
