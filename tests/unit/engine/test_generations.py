from collections.abc import Iterator

import pytest

from shared.errors import CancelledError, GenerationFailedError, InvalidInputError, ModelUnsupportedError
from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner, decode
from tests.unit.engine.test_structured import VOCABULARY, text_of
from workers.engine import Engine
from workers.engine.generations import Generations
from workers.engine.sequence import GenerationOutput, GenerationRequest

SAMPLED = SamplingParams(max_tokens=12, temperature=1.0, seed=7, n=3)


@pytest.fixture
def engine(runner: FakeRunner) -> Iterator[Engine]:
    with Engine(runner, decode) as engine:
        yield engine


def request(params: SamplingParams, id_: str = "a") -> GenerationRequest:
    return GenerationRequest(id_, [5, 6], params)


def outputs(output: GenerationOutput) -> list[tuple[int, ...]]:
    return [choice.token_ids for choice in (output, *output.alternatives)]


def test_n_outputs_are_those_of_n_seeds(engine: Engine) -> None:
    generations = Generations(engine, None)
    together = generations.submit(request(SAMPLED)).result(10)
    alone = [
        engine.submit(request(SAMPLED.model_copy(update={"n": 1, "seed": seed}))).result(10).token_ids
        for seed in (7, 8, 9)
    ]
    assert outputs(together) == alone
    assert len(set(alone)) == 3


def test_greedy_outputs_are_equal(engine: Engine) -> None:
    greedy = Generations(engine, None).submit(request(SamplingParams(max_tokens=6, n=2))).result(10)
    assert len(set(outputs(greedy))) == 1
    assert len(outputs(greedy)) == 2


@pytest.mark.parametrize("index", [0, 1, 2])
def test_cancelling_ends_all_outputs_even_when_some_are_done(engine: Engine, runner: FakeRunner, index: int) -> None:
    generations = Generations(engine, None)
    runner.gate.clear()
    future = generations.submit(request(SAMPLED))
    engine.abort(f"a#{index}", GenerationFailedError("this one fails")) if index else generations.cancel("a")
    runner.gate.set()
    with pytest.raises(GenerationFailedError if index else CancelledError):
        future.result(10)
    assert not generations.cancel("a")
    assert generations.submit(request(SAMPLED)).result(10).alternatives
    assert not any(engine.abort(f"a#{part}", CancelledError("")) for part in range(3))


def test_one_output_too_many_for_the_context_leaves_nothing_behind(engine: Engine) -> None:
    generations = Generations(engine, None)
    too_long = SAMPLED.model_copy(update={"max_tokens": 5000})
    with pytest.raises(InvalidInputError):
        generations.submit(request(too_long)).result(10)
    assert generations.submit(request(SAMPLED)).result(10).alternatives


def test_an_id_in_use_is_refused(engine: Engine, runner: FakeRunner) -> None:
    generations = Generations(engine, None)
    runner.gate.clear()
    future = generations.submit(request(SAMPLED))
    with pytest.raises(InvalidInputError, match="running already"):
        generations.submit(request(SAMPLED))
    runner.gate.set()
    assert future.result(10).alternatives


def test_stopping_hands_all_outputs_back(runner: FakeRunner) -> None:
    runner.gate.clear()
    with Engine(runner, decode) as engine:
        future = Generations(engine, None).submit(request(SAMPLED))
        runner.gate.set()
        engine.drain(0)
    assert future.exception(10) is not None


def test_each_of_n_outputs_is_held_to_the_constraint() -> None:
    params = SamplingParams(regex="[0-9]{3}", n=4, max_tokens=6, temperature=2.0, seed=1)
    with Engine(FakeRunner(vocab_size=VOCABULARY.vocab_size), text_of) as engine:
        output = Generations(engine, VOCABULARY).submit(request(params)).result(20)
    texts = [choice.text for choice in (output, *output.alternatives)]
    assert all(len(text) == 3 and text.isdecimal() for text in texts)
    assert len(set(texts)) > 1


@pytest.mark.parametrize("params", [SamplingParams(regex="a"), SamplingParams(logprobs=True)])
def test_without_a_vocabulary_what_needs_one_is_refused(engine: Engine, params: SamplingParams) -> None:
    with pytest.raises(ModelUnsupportedError):
        Generations(engine, None).submit(request(params))
