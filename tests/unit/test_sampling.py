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
