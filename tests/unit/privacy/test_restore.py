"""Restoring knows its own placeholders only, whole ones, in one pass."""

import pytest

from shared.privacy import restore

MAPPING = {"<PHONE_1>": "13812345678", "<PHONE_10>": "<PHONE_1>", "<CN_RESIDENT_ID_2>": "51010719660927216X"}


@pytest.mark.parametrize("spelling", ["<PHONE_1>", "<phone_1>", "< PHONE_1 >", "<Phone _ 1>", "<PHONE_01>"])
def test_case_and_blanks_are_forgiven(spelling: str) -> None:
    assert restore(f"call {spelling}.", MAPPING) == ("call 13812345678.", 0)


def test_a_placeholder_is_no_part_of_a_longer_one() -> None:
    assert restore("<PHONE_1><PHONE_10>", MAPPING) == ("13812345678<PHONE_1>", 0)


def test_unknown_placeholders_stay_and_are_counted() -> None:
    text = "<PHONE_11> <EMAIL_1> <b> <CN_RESIDENT_ID_2>"
    assert restore(text, MAPPING) == ("<PHONE_11> <EMAIL_1> <b> 51010719660927216X", 2)


def test_nothing_to_restore() -> None:
    assert restore("", {}) == ("", 0)
