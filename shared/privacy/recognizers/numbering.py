"""Numbering plans, read from `phonenumbers`; asked about single candidates only, because it is slow on whole texts."""

import phonenumbers

LOCAL_REGIONS = ("CN", "US", "GB", "HK", "TW", "MO", "SG", "JP", "KR", "IN", "DE", "FR", "AU")
"""Regions whose national spelling is tried when a label says that a number is a telephone's."""


def is_dialable(number: str) -> bool:
    """Tell whether `+44 ...` or `0044 ...` has a known country code and a length its plan allows.

    `00` also begins serial numbers, so there the number must lie in an assigned range.
    """
    plus = number.lstrip("(").startswith("+")
    parsed = _parsed(number if plus else "+" + number.lstrip("(").removeprefix("011").lstrip(" -0"), None)
    if parsed is None:
        return False
    return phonenumbers.is_possible_number(parsed) if plus else phonenumbers.is_valid_number(parsed)


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
