# full-width forms are what is tested
"""What scrubbing promises for any text: nothing else changes, nothing stays, everything comes back, faults close."""

import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import ScrubFailedError
from shared.privacy import Action, Policy, Scrubber, restore
from shared.privacy.recognizers.recognizer import Candidate, Recognizer

SCRUBBER = Scrubber()
VALUES = (
    "13812345678",
    "138 1234 5678",
    "１３８１２３４５６７８",
    "+86 139-8765-0421",
    "021-55119941",
    "(0755) 2688 1234",
    "+44 20 7946 0084",
    "212-555-0104",
    "a.b+c@example.com",
    "A.B+C@EXAMPLE.COM",
    "x%40example.org",
    "51010719660927216X",
    "4811 1402 5522 9473",
    "6217009676654773789",
    "192.0.2.41",
    "2001:db8::26de",
    "93350206MAC1MEX835",
    "粤B·12345",
    "258-30-1621",
    "K042220(7)",
    "C156686735",
    "02-EC-97-BE-96-35",
    "DE89 3704 0044 0532 0130 00",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "https://ops:Kd83mQx7Pw@files.example.com/a.zip?b=1",
)
JOINTS = (
    *" \n\t,.;:!?-_/@()<>[]{}\"'=&#%+*|\\0123456789aXz",
    "，",
    "。",
    "：",
    "（",
    "）",
    "　",
    "\u200b",
    "\ufeff",
    "\u0301",
    "\ud800",
    "\x1f",
    "电话",
    "卡号",
    "身份证",
    "tel",
    "version ",
    "password: ",
    "Hunter2!",
    "token=",
    "MRN ",
    "12716635",
    "born ",
    "1990-05-03",
    "出生",
    "护照",
    "E80483093",
    "IP",
    "order no. ",
    "<PHONE_1>",
    "< phone_2 >",
    "<EMAIL_1>",
    "<PHONE_",
    "_1>",
    "PHONE",
    "李娜",
    "😀",
)
texts = st.one_of(
    st.text(st.characters(), max_size=80),
    st.lists(st.one_of(st.sampled_from(VALUES), st.sampled_from(JOINTS)), max_size=24).map("".join),
)


@settings(max_examples=600, deadline=None)
@given(texts)
def test_restoring_gives_the_text_back(text: str) -> None:
    result = SCRUBBER.scrub(text)
    assert restore(result.text, result.mapping)[0] == text


@settings(max_examples=600, deadline=None)
@given(texts)
def test_scrubbing_again_changes_nothing(text: str) -> None:
    once = SCRUBBER.scrub(text).text
    again = SCRUBBER.scrub(once)
    assert again.text == once
    assert again.receipt["entities"] == {}


@settings(max_examples=600, deadline=None)
@given(texts)
def test_spans_are_disjoint_and_text_outside_them_is_untouched(text: str) -> None:
    result = SCRUBBER.scrub(text)
    scrubbed, position, end = result.text, 0, 0
    for span in result.spans:
        assert end <= span.start < span.end <= len(text)
        outside = text[end : span.start]
        assert scrubbed.startswith(outside + f"<{span.entity}_", position)
        position = scrubbed.index(">", position + len(outside)) + 1
        end = span.end
    assert scrubbed[position:] == text[end:]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "frame", ["{}", "请核对{}后放行", "（{}）", '{{"v":"{}"}}', "see {}, please", "{}\n{}", "{} / {}"]
)
def test_no_part_of_a_value_stays(value: str, frame: str) -> None:
    text = frame.format(value, value)
    result = SCRUBBER.scrub(text)
    assert len(result.spans) == frame.count("{}") - frame.count("{{}}")
    assert all(text[span.start : span.end] == value for span in result.spans)


def test_the_same_value_is_the_same_placeholder_in_any_spelling() -> None:
    text = "打13812345678或138-1234-5678，即+86 138 1234 5678，不是13912345678"
    result = SCRUBBER.scrub(text)
    assert result.text == "打<PHONE_1>或<PHONE_1>，即<PHONE_1>，不是<PHONE_2>"
    assert restore(result.text, result.mapping) == (text, 0)


def test_literal_placeholders_stay_and_are_never_given_out() -> None:
    result = SCRUBBER.scrub("<PHONE_1> and < phone_2 > are literal, 13812345678 is not")
    assert result.text == "<PHONE_1> and < phone_2 > are literal, <PHONE_3> is not"
    assert result.mapping == {"<PHONE_3>": "13812345678"}


def test_a_number_behind_a_literal_placeholder_is_found() -> None:
    assert SCRUBBER.scrub("<PERSON_1>13812345678").text == "<PERSON_1><PHONE_1>"


def test_messages_share_one_mapping() -> None:
    messages = [
        {"role": "system", "content": "Never call 13812345678. <PHONE_1> is an example."},
        {"role": "user", "content": "Call 138 1234 5678 or a@example.com", "name": "u"},
    ]
    scrubbed, result = SCRUBBER.scrub_messages(messages)
    assert scrubbed == [
        {"role": "system", "content": "Never call <PHONE_2>. <PHONE_1> is an example."},
        {"role": "user", "content": "Call <PHONE_2> or <EMAIL_1>", "name": "u"},
    ]
    assert result.receipt["entities"] == {"EMAIL": 1, "PHONE": 2}
    assert messages[1]["content"].startswith("Call 138")


def test_a_second_pass_continues_the_mapping() -> None:
    first = SCRUBBER.scrub("call 13812345678")
    second = SCRUBBER.scrub("<PHONE_1> is 138-1234-5678, not 13900001111", mapping=first.mapping)
    assert second.text == "<PHONE_1> is <PHONE_1>, not <PHONE_2>"
    assert first.mapping == {"<PHONE_1>": "13812345678"}


def test_two_jobs_never_share_a_mapping() -> None:
    first, second = SCRUBBER.scrub("call 13812345678"), SCRUBBER.scrub("call 13900001111")
    assert first.text == second.text == "call <PHONE_1>"
    assert first.mapping == {"<PHONE_1>": "13812345678"}
    assert second.mapping == {"<PHONE_1>": "13900001111"}


def test_the_receipt_holds_counts_and_nothing_of_the_text() -> None:
    result = SCRUBBER.scrub("call 13812345678, 13900001111 or a@example.com")
    assert result.receipt["entities"] == {"EMAIL": 1, "PHONE": 2}
    assert result.receipt["policy"] == "default@1"
    assert result.receipt["ms"] > 0
    assert set(result.receipt) == {"entities", "policy", "ms"}
    assert "138" not in repr(result)
    assert "example" not in repr(result)


def test_a_kept_entity_stays_unless_another_value_holds_it() -> None:
    policy = Policy(name="phones", version=2, actions={"PHONE": Action.KEEP})
    result = SCRUBBER.scrub("13812345678, u.13812345678@example.com", policy=policy)
    assert result.text == "13812345678, <EMAIL_1>"
    assert result.receipt["policy"] == "phones@2"


def _explode(candidate: Candidate) -> Candidate | None:
    raise ValueError(candidate.text)


def test_any_fault_fails_closed_and_quotes_nothing() -> None:
    broken = Scrubber((Recognizer.of("PHONE", "(canary-[0-9]+)", _explode),))
    with pytest.raises(ScrubFailedError) as caught:
        broken.scrub(f"canary-{4711}")
    assert caught.value.code == "scrub_failed"
    trace = "".join(traceback.format_exception(caught.value))
    assert "canary-4711" not in trace
    assert caught.value.__context__ is None


def test_messages_without_content_fail_closed() -> None:
    with pytest.raises(ScrubFailedError):
        SCRUBBER.scrub_messages([{"role": "user"}])
