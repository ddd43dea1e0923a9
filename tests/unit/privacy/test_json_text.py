"""JSON in, JSON out: escapes hide nothing, numbers become strings, restoring gives the text back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.privacy import STRICT, Action, Policy, Scrubber, restore
from shared.privacy.json_text import Unescaped

SCRUBBER = Scrubber()
CASES = [
    ('{"phone": 13812345678, "n": 1}', {"phone": "<PHONE_1>", "n": 1}),
    ('{"13812345678": [true, null, "x"]}', {"<PHONE_1>": [True, None, "x"]}),
    ('{"mail": "ann\\u0040example.com", "a": "\\u4e2d\\n"}', {"mail": "<EMAIL_1>", "a": "中\n"}),
    ('["tel:\\t138\\u00201234\\u00205678"]', ["tel:\t<PHONE_1>"]),
    ('{"q": "say \\"13812345678\\" twice"}', {"q": 'say "<PHONE_1>" twice'}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_json_is_scrubbed_through_its_escapes_and_stays_json(text: str, expected: object) -> None:
    result = SCRUBBER.scrub(text)
    assert json.loads(result.text) == expected
    assert restore(result.text, result.mapping) == (text, 0)


def test_masked_numbers_and_escaped_names_stay_json() -> None:
    policy = Policy(actions={"PHONE": Action.MASK})
    masked = SCRUBBER.scrub('{"phone": 13812345678}', policy=policy).text
    assert json.loads(masked) == {"phone": "*******5678"}
    named = SCRUBBER.scrub('{"name": "\\u5f20\\u4f1f"}', policy=STRICT).text
    assert json.loads(named) == {"name": "<PERSON_1>"}


def test_lines_of_json_stay_lines_of_json() -> None:
    text = '{"phone": 13812345678}\n{"phone": "13812345678"}\n'
    result = SCRUBBER.scrub(text)
    assert [json.loads(line)["phone"] for line in result.text.splitlines()] == ["<PHONE_1>", "<PHONE_1>"]
    assert restore(result.text, result.mapping)[0] == text


def test_what_is_restored_into_json_is_escaped() -> None:
    mapping = {"<PERSON_1>": 'Ann "the cat" Lee'}
    restored, unresolved = restore('{"name": "<PERSON_1>", "other": "<PERSON_2>"}', mapping)
    assert (json.loads(restored)["name"], unresolved) == ('Ann "the cat" Lee', 1)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=12)
    | st.sampled_from(["13812345678", "a@example.com"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(values, max_size=3), st.booleans())
def test_any_json_stays_json_and_comes_back(value: list[object], ascii_only: bool) -> None:  # noqa: FBT001 — Hypothesis passes it
    text = json.dumps(value, ensure_ascii=ascii_only)
    result = SCRUBBER.scrub(text)
    json.loads(result.text)
    assert restore(result.text, result.mapping)[0] == text


@given(st.text(alphabet='a\\u0"n/中😀{}', max_size=30))
def test_unescaped_text_maps_back(text: str) -> None:
    escaped = json.dumps(text)
    plain = Unescaped.of(escaped)
    assert plain.text == f'"{text}"'
    for start in range(len(plain.text)):
        first, last = plain.original_span(start, start + 1)
        piece = escaped[first:last]
        assert (json.loads(f'"{piece}"') if piece.startswith("\\") else piece) == plain.text[start]
