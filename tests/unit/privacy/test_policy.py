"""What policies do to values, and which policy is stricter than which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.crypto import KeyRing, generate_key
from shared.errors import InvalidInputError, PrivacyBlockedError, ScrubFailedError
from shared.privacy import DEFAULT, STRICT, Action, Policy, Scrubber
from shared.privacy.policy import policy_named
from shared.privacy.recognizers.recognizer import Candidate, Recognizer
from shared.privacy.replacement import digest_for

SCRUBBER = Scrubber()
TEXT = "Call 13812345678 or write to ann@example.com."


def scrubbed(text: str, **actions: Action) -> str:
    return SCRUBBER.scrub(text, policy=Policy(actions=dict(actions))).text


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.REPLACE, "Call <PHONE_1> or write to <EMAIL_1>."),
        (Action.MASK, "Call *******5678 or write to <EMAIL_1>."),
        (Action.REDACT, "Call <PHONE> or write to <EMAIL_1>."),
        (Action.KEEP, "Call 13812345678 or write to <EMAIL_1>."),
    ],
)
def test_each_action_does_what_it_says(action: Action, expected: str) -> None:
    assert scrubbed(TEXT, PHONE=action) == expected


def test_hashes_are_equal_within_a_key_and_differ_between_keys() -> None:
    keyring, policy = KeyRing.from_setting(generate_key()), Policy(default=Action.HASH)
    one, two = digest_for(keyring, "one"), digest_for(keyring, "two")
    spellings = ["13812345678", "138 1234 5678"]
    hashed = [SCRUBBER.scrub(f"Call {number}", policy=policy, digest=one).text for number in spellings]
    assert hashed[0] == hashed[1]
    assert hashed[0].startswith("Call <PHONE:")
    assert SCRUBBER.scrub("Call 13812345678", policy=policy, digest=two).text != hashed[0]


def test_blocked_data_refuses_the_text_and_names_types_only() -> None:
    with pytest.raises(PrivacyBlockedError, match=r"1 EMAIL") as refused:
        scrubbed(TEXT, EMAIL=Action.BLOCK)
    assert "ann@" not in refused.value.message
    assert refused.value.__cause__ is None


def test_what_is_on_a_list_stays() -> None:
    policy = Policy(allow=("ann@example.com",), allow_patterns=("138[0-9]{8}",))
    assert SCRUBBER.scrub(TEXT, policy=policy).text == TEXT
    assert SCRUBBER.scrub("bob@example.com", policy=policy).text == "<EMAIL_1>"


@pytest.mark.parametrize("field", ["actions", "allow_patterns", "name", "default", "unknown"])
def test_a_wrong_policy_names_its_field(field: str) -> None:
    wrong = {"actions": {"phone": "mask"}, "allow_patterns": ["(?=x)"], "name": "No", "default": "hide", "unknown": 1}
    with pytest.raises(ValidationError) as refused:
        Policy.model_validate({field: wrong[field]})
    assert refused.value.errors()[0]["loc"][0] == field


def test_names_are_looked_for_where_the_policy_asks() -> None:
    text = "患者张伟，联系人 Carrie Tucker"
    assert SCRUBBER.scrub(text).text == text
    assert SCRUBBER.scrub(text, policy=STRICT).text == "患者<PERSON_1>，联系人 <PERSON_2>"


def test_built_in_policies_go_by_name() -> None:
    assert policy_named("strict") == STRICT
    with pytest.raises(InvalidInputError, match="default, strict"):
        policy_named("none")


actions = st.dictionaries(st.sampled_from(["PHONE", "EMAIL", "CUSTOM_ID"]), st.sampled_from(list(Action)))
policies = st.builds(Policy, actions=actions, default=st.sampled_from(list(Action)), names=st.booleans())


@given(policies, policies)
def test_no_looser_policy_hides_less(one: Policy, other: Policy) -> None:
    assert one.looser_than(one) is None
    if one.looser_than(other) is None and other.looser_than(one) is None:
        for entity in ("PHONE", "EMAIL", "CUSTOM_ID", "IBAN"):
            assert one.action(entity) == other.action(entity)
        assert one.names == other.names


@pytest.mark.parametrize(
    ("wanted", "of_key", "looser"),
    [
        (STRICT, DEFAULT, None),
        (DEFAULT, STRICT, "names"),
        (Policy(actions={"PHONE": Action.KEEP}), DEFAULT, "PHONE"),
        (Policy(actions={"PHONE": Action.REDACT}), DEFAULT, None),
        (Policy(default=Action.MASK), DEFAULT, "ADDRESS"),
        (Policy(allow=("a",)), DEFAULT, "allow"),
        (Policy(allow=("a",)), Policy(allow=("a", "b")), None),
        (DEFAULT, Policy(actions={"CUSTOM_ID": Action.BLOCK}), "CUSTOM_ID"),
    ],
)
def test_a_job_may_only_ask_for_more(wanted: Policy, of_key: Policy, looser: str | None) -> None:
    assert wanted.looser_than(of_key) == looser


texts = st.text(max_size=60) | st.sampled_from([TEXT, "卡号6217001234567890126，13812345678"])


@given(texts, policies)
def test_scrubbing_twice_changes_nothing(text: str, policy: Policy) -> None:
    policy = policy.model_copy(update={"names": False})
    try:
        once = SCRUBBER.scrub(text, policy=policy).text
    except PrivacyBlockedError:
        return
    assert SCRUBBER.scrub(once, policy=policy).text == once


def test_a_recognizer_that_fails_or_takes_too_long_closes_the_text() -> None:
    def fails(_candidate: Candidate) -> Candidate | None:
        raise ValueError("13812345678")

    broken = Scrubber([Recognizer.of("PHONE", "([0-9]+)", fails)])
    with pytest.raises(ScrubFailedError) as refused:
        broken.scrub("call 13812345678")
    assert "138" not in refused.value.message
    with pytest.raises(ScrubFailedError, match="longer than 0 seconds"):
        Scrubber(max_seconds=0).scrub("call 13812345678")
