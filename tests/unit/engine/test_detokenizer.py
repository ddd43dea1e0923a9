import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.fake_runner import decode
from workers.engine.detokenizer import MAX_PENDING_TOKENS, Detokenizer


def feed(text: bytes, stop: tuple[str, ...] = ()) -> str | None:
    subject = Detokenizer(decode, stop)
    for token_id in text:
        found = subject.append(token_id)
        if found is not None:
            return found
    return subject.flush()


@given(st.text(max_size=60))
def test_pieces_add_up_to_the_whole_text(text: str) -> None:
    subject = Detokenizer(decode)
    for token_id in text.encode():
        assert subject.append(token_id) is None
    subject.flush()
    assert subject.text == text


def test_characters_are_held_back_until_whole() -> None:
    subject = Detokenizer(decode)
    seen = []
    for token_id in "a好".encode():
        subject.append(token_id)
        seen.append(subject.text)
    assert seen == ["a", "a", "a", "a好"]


def test_an_unfinished_character_comes_out_with_flush() -> None:
    subject = Detokenizer(decode)
    for token_id in "a好".encode()[:-1]:
        subject.append(token_id)
    subject.flush()
    assert subject.text == "a\ufffd"


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one END two", ("END",), "one "),
        ("one END two", ("two", "END"), "one "),
        ("END", ("END",), ""),
        ("你好。再见", ("。",), "你好"),
        ("aab", ("ab",), "a"),
        ("one", ("END",), None),
        ("ENEND", ("END",), "EN"),
    ],
)
def test_stop_strings_end_the_text(text: str, stop: tuple[str, ...], expected: str | None) -> None:
    assert feed(text.encode(), stop) == expected


@given(st.text("abc", max_size=40), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_stop_string_is_found_as_soon_as_it_is_complete(text: str, stop: list[str]) -> None:
    ends = [text.find(item) + len(item) for item in stop if item in text]
    whole = text[: min(ends)] if ends else None
    expected = None if whole is None else whole[: min(whole.find(item) for item in stop if item in whole)]
    assert feed(text.encode(), tuple(stop)) == expected


def test_text_exempt_from_the_search_stays_exempt() -> None:
    subject = Detokenizer(decode, ("END",))
    for token_id in b"EN":
        assert subject.append(token_id, search=False) is None
    for token_id in b"D.EN":
        assert subject.append(token_id) is None
    assert subject.append(ord("D")) == "END."


def test_bytes_that_never_become_text_do_not_pile_up() -> None:
    longest = 0

    def measured(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    subject = Detokenizer(measured)
    for _ in range(500):
        subject.append(0xFF)
    assert longest <= 3 * MAX_PENDING_TOKENS
    assert len(subject.text) >= 500 - MAX_PENDING_TOKENS
