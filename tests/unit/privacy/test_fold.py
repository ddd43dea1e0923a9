# full-width forms are what is tested
"""The folded view: what is matched on, and the way back to the original."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.privacy.fold import WALL, View


def folded(text: str) -> str:
    return View(text).data.decode()


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("plain ASCII", "plain ASCII"),
        ("１３８Ａｚ＠（）", "138Az@()"),
        ("٣٤५६𝟙", "34561"),
        ("a\u3000b\u00a0c\u2003d", "a b c d"),
        ("1\u20102\u20133\u22124", "1-2-3-4"),
        ("13\u200b8\ufeff1\u00ad2", "13812"),
        ("3\u03010", "30"),
        ("\ufeff京\u200bA1", "京A1"),
        ("हि", "हि"),
        ("逗，分；叹！问？", "逗，分；叹！问？"),
        ("\ud800", "\ufffd"),
    ],
)
def test_folds(text: str, view: str) -> None:
    assert folded(text) == view


@given(st.text(st.one_of(st.characters(), st.sampled_from("ab1\u200b\u0301１中𝟙\U000e0041")), max_size=60))
def test_every_character_of_the_view_leads_back(text: str) -> None:
    view = View(text)
    position = end = 0
    for char in view.data.decode():
        width = len(char.encode())
        start, after = view.original_span(position, position + width)
        assert end <= start < after <= len(text)
        assert after == start + 1
        assert folded(text[start:after]) in {char, ""}
        position, end = position + width, after


def test_a_span_covers_what_was_dropped_inside() -> None:
    text = "号18574\u200b038603。"
    view = View(text)
    start = view.data.index(b"1")
    assert text.__getitem__(slice(*view.original_span(start, start + 11))) == "18574\u200b038603"


def test_walls_keep_length_and_stop_context() -> None:
    view = View("phone 12345 x", walls=[(6, 11)])
    assert view.data.decode() == f"phone {WALL * 5} x"
    assert view.before(12, 12) == " "
    assert view.after(0, 12) == "phone "


def test_context_is_cut_at_characters() -> None:
    view = View("身份证号：42")
    offset = view.data.index(b"4")
    assert view.before(offset, 3) == "证号:"
    assert view.before(offset, 99) == "身份证号:"
    assert view.after(0, 2) == "身份"
