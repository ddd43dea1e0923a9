import json
import math

import pytest
from pydantic import ValidationError

from shared.sampling import SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", math.nan),
        ("temperature", -0.1),
        ("temperature", 1e-300),
        ("temperature", 1e-40),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", math.nan),
        ("max_tokens", 0),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-40),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [-100_000]),
        ("stop_token_ids", [2**70]),
        ("presence_penalty", 2.5),
        ("frequency_penalty", math.nan),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", [""]),
        ("stop", ["x"] * 17),
        ("top_logprobs", 21),
        ("logit_bias", {"5": 100.5}),
        ("logit_bias", {"5": math.nan}),
        ("logit_bias", {"five": 1}),
        ("logit_bias", {"\u0665": 1}),
        ("logit_bias", {str(token): 1 for token in range(301)}),
        ("n", 0),
        ("n", 17),
        ("num_beams", 17),
        ("length_penalty", math.inf),
        ("adapter", "../x"),
        ("regex", ""),
        ("regex", "x" * 4097),
        ("choice", []),
        ("choice", ["x"] * 513),
        ("choice", "x"),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "text", "json_schema": {"name": "x", "schema": {}}}),
        ("unknown", 1),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        SamplingParams.model_validate({field: value})
    assert field in str(caught.value.errors()[0]["loc"][0])


def test_one_stop_string_may_stand_alone() -> None:
    assert SamplingParams.model_validate({"stop": "END"}).stop == ("END",)


def test_greedy_is_temperature_zero() -> None:
    assert SamplingParams().greedy
    assert not SamplingParams(temperature=0.7).greedy


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
        ({"regex": "a", "choice": ["a"]}, "choice"),
        ({"choice": ["a"], "stop": "x"}, "choice"),
        ({"regex": "a", "min_tokens": 1}, "regex"),
        ({"num_beams": 2, "temperature": 0.5}, "num_beams"),
        ({"num_beams": 2, "logprobs": True}, "num_beams"),
        ({"num_beams": 2, "choice": ["a"]}, "num_beams"),
        ({"num_beams": 2, "min_p": 0.1}, "num_beams"),
        ({"num_beams": 2, "n": 3}, "n"),
        ({"length_penalty": 0.5}, "length_penalty"),
    ],
)
def test_what_excludes_each_other_is_refused_by_name(given: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SamplingParams.model_validate(given)
    assert caught.value.errors()[0]["loc"] == (field,)


@pytest.mark.parametrize(
    "given",
    [
        {"response_format": {"type": "text"}, "regex": "a", "n": 4},
        {"response_format": {"type": "text"}, "stop": ["x"]},
        {"num_beams": 4, "n": 4, "length_penalty": -2, "adapter": "my-adapter"},
        {"logprobs": True, "top_logprobs": 20, "logit_bias": {"7": -100, "8": 2}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}},
    ],
)
def test_what_goes_together_survives_storage(given: dict[str, object]) -> None:
    params = SamplingParams.model_validate_json(json.dumps(given), strict=True)
    assert SamplingParams.model_validate(json.loads(json.dumps(params.model_dump(mode="json")))) == params


def test_free_text_is_no_constraint() -> None:
    assert not SamplingParams.model_validate({"response_format": {"type": "text"}}).constrained
    assert SamplingParams.model_validate({"response_format": {"type": "json_object"}}).constrained


def test_each_of_n_outputs_has_a_seed_of_its_own() -> None:
    params = SamplingParams(n=3, seed=2**63 - 1, temperature=1)
    assert [params.of_choice(index).seed for index in range(3)] == [2**63 - 1, 0, 1]
    assert SamplingParams(n=2).of_choice(1).seed is None
