"""Shapes, log probabilities, biases and several outputs on the real model, mixed in one batch with plain jobs."""

import json
import math
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shared.sampling import SamplingParams
from shared.tokenizer import ChatTokenizer
from workers.engine import Engine, GenerationOutput, GenerationRequest
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.engine.generations import Generations
from workers.engine.structured import Vocabulary

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

LETTER = "Hello, my name is Anna Berg. I am 34 years old and I live in Lisbon with my two cats, Tom and Mia."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "city": {"type": "string", "maxLength": 40},
        "cats": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
    },
    "required": ["name", "age", "city", "cats"],
    "additionalProperties": False,
}
EXTRACT = f"Extract name, age, city and cats as JSON from this letter: {LETTER}"
SHAPE = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
CAPITAL = "Which city is the capital of France? Answer with one word."
JOBS: list[tuple[str, dict[str, Any]]] = [
    (EXTRACT, {"response_format": SHAPE, "max_tokens": 100}),
    (EXTRACT, {"response_format": SHAPE, "max_tokens": 48, "temperature": 1.2, "seed": 5}),
    (CAPITAL, {"max_tokens": 12}),
    (CAPITAL, {"choice": ["Paris", "Rome", "Berlin"], "logprobs": True, "top_logprobs": 5}),
    ("On which date did the war end? Write year-month-day.", {"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}", "max_tokens": 16}),
    ("Tell me a short story.", {"max_tokens": 20, "temperature": 0.9, "seed": 3, "n": 3}),
    (CAPITAL, {"max_tokens": 12, "logprobs": True, "top_logprobs": 20, "temperature": 0.7, "seed": 1}),
    ("Describe a cat.", {"response_format": {"type": "json_object"}, "max_tokens": 30}),
]


def told(output: GenerationOutput) -> list[tuple[Any, ...]]:
    return [
        (choice.token_ids, choice.text, choice.finish_reason, choice.logprobs)
        for choice in (output, *output.alternatives)
    ]


def generate(directory: Path, rows: int) -> list[GenerationOutput]:
    tokenizer = ChatTokenizer.from_directory(directory)
    runner = ContinuousRunner(directory, RunnerConfig(rows, 384, 1))
    with Engine(runner, tokenizer.decode) as engine:
        vocabulary = Vocabulary.from_directory(directory, runner.vocab_size, runner.eos_token_ids)
        generations = Generations(engine, vocabulary)
        requests = [
            GenerationRequest(
                str(index),
                tokenizer.encode_chat([{"role": "user", "content": text}]),
                SamplingParams.model_validate(sampling),
            )
            for index, (text, sampling) in enumerate(JOBS)
        ]
        return [future.result(300) for future in [generations.submit(request) for request in requests]]


@pytest.fixture(scope="module")
def outputs(model_dir_int8: Path) -> list[GenerationOutput]:
    return generate(model_dir_int8, rows=10)


def test_outputs_are_the_same_alone_and_in_one_batch(outputs: list[GenerationOutput], model_dir_int8: Path) -> None:
    assert list(map(told, generate(model_dir_int8, rows=1))) == list(map(told, outputs))


def test_a_schema_is_kept_and_filled_with_what_the_text_says(outputs: list[GenerationOutput]) -> None:
    for output in outputs[:2]:
        jsonschema.validate(json.loads(output.text), SCHEMA)
    assert json.loads(outputs[0].text)["age"] == 34
    assert outputs[0].finish_reason == "stop"


def test_a_choice_a_regex_and_an_object_are_kept(outputs: list[GenerationOutput]) -> None:
    assert (outputs[3].text, outputs[3].finish_reason) == ("Paris", "stop")
    assert re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", outputs[4].text)
    assert isinstance(json.loads(outputs[7].text), dict)


def test_log_probabilities_are_a_distribution(outputs: list[GenerationOutput]) -> None:
    for output in (outputs[3], outputs[6]):
        assert output.logprobs is not None
        assert tuple(entry.token_id for entry in output.logprobs) == output.token_ids
        for entry in output.logprobs:
            assert 0 < sum(math.exp(value) for _, value in entry.top) <= 1 + 1e-9
            assert entry.logprob <= entry.top[0][1] <= 0


def test_several_outputs_differ_by_their_seeds(outputs: list[GenerationOutput]) -> None:
    assert len({choice.text for choice in (outputs[5], *outputs[5].alternatives)}) == 3
