import numpy as np
import pytest

from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner, decode
from workers.engine import Engine
from workers.engine.logprobs import token_logprob
from workers.engine.sampler import SequenceSampler, sample
from workers.engine.sequence import GenerationRequest


def test_the_model_s_own_distribution_is_told_whatever_shapes_the_choice() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    params = SamplingParams(logprobs=True, top_logprobs=2, logit_bias={3: 100.0})
    sampled = sample(row[None], [SequenceSampler(params, (0,), 4, frozenset())])
    told = sampled.logprobs[0]
    assert (sampled.token_ids, told.token_id) == ([3], 3)
    assert np.exp(told.logprob) == pytest.approx(0.05)
    assert [token for token, _ in told.top] == [0, 1]
    assert np.exp([value for _, value in told.top]) == pytest.approx([0.5, 0.3])


def test_all_probabilities_together_are_one_even_where_logits_are_large() -> None:
    row = np.random.default_rng(0).normal(size=500).astype(np.float32) * 1000
    told = token_logprob(row, 3, 20)
    assert sum(np.exp(value) for _, value in told.top) == pytest.approx(1)
    assert [value for _, value in told.top] == sorted((value for _, value in told.top), reverse=True)


def test_rows_that_did_not_ask_get_none() -> None:
    rows = np.zeros((2, 8), np.float32)
    asked, silent = (SequenceSampler(SamplingParams(logprobs=flag), (0,), 8, frozenset()) for flag in (True, False))
    assert list(sample(rows, [silent, asked]).logprobs) == [1]


def test_an_output_has_one_entry_for_each_of_its_tokens(runner: FakeRunner) -> None:
    params = [SamplingParams(max_tokens=7, logprobs=True, top_logprobs=3), SamplingParams(max_tokens=7)]
    with Engine(runner, decode) as engine:
        told, silent = (
            engine.submit(GenerationRequest(str(index), [5, 6], p)).result(10) for index, p in enumerate(params)
        )
    assert told.logprobs is not None
    assert tuple(entry.token_id for entry in told.logprobs) == told.token_ids == silent.token_ids
    assert all(entry.top[0] == (entry.token_id, entry.logprob) for entry in told.logprobs)
    assert silent.logprobs is None
