"""Numbering plans, read from `phonenumbers`; asked about single candidates only, because it is slow on whole texts."""

import phonenumbers

LOCAL_REGIONS = ("CN", "US", "GB", "HK", "TW", "MO", "SG", "JP", "KR", "IN", "DE", "FR", "AU")
"""Regions whose national spelling is tried when a label says that a number is a telephone's."""

_EVIDENT_DIGITS = 10


def is_dialable(number: str) -> bool:
    """Tell whether `+44 ...` or `0044 ...` is a telephone number.

    Behind a plus in front of ten digits or several groups, a known country and a possible length will do: fictional
    ranges are not assigned. A short figure may be a sum and `00` may begin a serial number, so those must be assigned.
    """
    bare = number.lstrip("(")
    plus = bare.startswith("+")
    parsed = _parsed(number if plus else "+" + bare.removeprefix("011").lstrip(" -0"), None)
    if parsed is None:
        return False
    evident = plus and (not bare[1:].isdigit() or len(bare) > _EVIDENT_DIGITS)
    return phonenumbers.is_possible_number(parsed) if evident else phonenumbers.is_valid_number(parsed)


def is_dialable_locally(number: str) -> bool:
    """Tell whether some region of `LOCAL_REGIONS` assigns `number` as written, without a country code."""
    return any(
        (parsed := _parsed(number, region)) is not None and phonenumbers.is_valid_number(parsed)
        for region in LOCAL_REGIONS
    )


def _parsed(number: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None
