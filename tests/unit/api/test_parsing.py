import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from api.json_body import parse
from api.middleware import request_id_from
from api.schemas import JobRequest
from api.validation import invalid_input
from shared.errors import InvalidInputError


def job(**fields: object) -> JobRequest:
    return parse(JobRequest, json.dumps({"prompt": "x", **fields}).encode())


@given(st.binary(max_size=200))
def test_whatever_comes_is_parsed_or_refused(raw: bytes) -> None:
    try:
        parse(JobRequest, raw)
    except InvalidInputError as error:
        assert error.message  # noqa: PT017  # most inputs are refused, some need not be


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*JobRequest.model_fields, "other"]), JSON, max_size=4))
def test_any_json_object_is_parsed_or_refused_by_name(document: dict[str, object]) -> None:
    try:
        parse(JobRequest, json.dumps(document).encode())
    except InvalidInputError as error:
        assert error.field  # noqa: PT017  # see above
        assert error.field.isprintable()  # noqa: PT017  # see above


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ({}, {"priority": "normal"}, True),
        ({}, {"sampling": {}}, True),
        ({"sampling": {"temperature": 1}}, {"sampling": {"temperature": 1.0}}, True),
        ({"deadline": "2030-01-01T00:00:00Z"}, {"deadline": "2030-01-01T01:00:00+01:00"}, True),
        ({"deadline": "2030-01-01T00:00:00Z"}, {"deadline": 1893456000}, True),
        ({"metadata": {"a": "1", "b": "2"}}, {"metadata": {"b": "2", "a": "1"}}, True),
        ({}, {"priority": "low"}, False),
        ({}, {"model": "other"}, False),
        ({}, {"metadata": {"a": "1"}}, False),
        ({}, {"sampling": {"seed": 1}}, False),
    ],
)
def test_equal_jobs_are_equal_bytes(left: dict[str, object], right: dict[str, object], equal: bool) -> None:  # noqa: FBT001  # a table column
    assert (job(**left).canonical() == job(**right).canonical()) is equal


def test_a_query_finding_is_named_without_its_place() -> None:
    error = invalid_input([{"loc": ("query", "limit"), "type": "less_than_equal", "msg": "Input should be <= 100"}])
    assert error.field == "limit"
    assert error.message == "limit is invalid: input should be <= 100; correct it and send it again"


def test_a_refusal_has_no_cause_that_quotes_the_input() -> None:
    class Model(BaseModel):
        count: int

    with pytest.raises(InvalidInputError) as caught:
        parse(Model, b'{"count": "zebra"}')
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("presented", ["trace-0042", "a" * 64, "0b7e7a5e-3a52-4f6e-9d7f-1c1c1c1c1c1c"])
def test_a_plain_identifier_is_taken_over(presented: str) -> None:
    assert request_id_from(presented) == presented


@pytest.mark.parametrize(
    "presented",
    [
        None,
        "",
        "short",
        "a" * 65,
        "with space",
        "under_score",
        "trailing\n",
        "13812345678",
        "call-13812345678",
        "ünïcode1",
    ],
)
def test_any_other_is_replaced_by_a_fresh_one(presented: str | None) -> None:
    fresh = request_id_from(presented)
    assert fresh != presented
    assert fresh == request_id_from(fresh)
