"""What onnxruntime-genai serves, held to numpy on a tiny decoder: one test per trap that could change an output."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from shared.errors import InvalidInputError
from shared.sampling import SamplingParams
from tests.beam_reference import BeamReference
from tests.tiny_genai import EOS, PAD, VOCAB, TinyGenai
from workers.engine.genai_engine import GenaiConfig, GenaiEngine
from workers.engine.genai_process import GenaiCallError
from workers.engine.sequence import GenerationOutput, GenerationRequest

PROMPT = [4, 5, 6, 7]
IDS = itertools.count()


def decode(ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token_id) for token_id in ids)


@dataclass
class Served:
    """A model in the engine."""

    model: TinyGenai
    engine: GenaiEngine
    adapted: TinyGenai = field(init=False)

    def generate(self, prompt: list[int], **params: Any) -> GenerationOutput:  # noqa: ANN401  # any parameter
        request = GenerationRequest(f"job {next(IDS)}", prompt, SamplingParams(**params))
        return self.engine.submit(request).result(60)

    def beams(self, prompt: list[int], **params: Any) -> list[list[int]]:  # noqa: ANN401  # as above
        best = self.generate(prompt, **params)
        return [list(output.token_ids) for output in (best, *best.alternatives)]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> None:
    """Take the place of the check of every test: lanes live as long as the engine of this module."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("tiny")
    model = TinyGenai.random(end_bias=2)
    model.write(directory)
    with GenaiEngine(directory, decode, GenaiConfig(max_model_len=256)) as engine:
        found = Served(model, engine)
        found.adapted = model.adapted(9)
        found.adapted.write_adapter(directory, "law")
        yield found


def test_greedy_tokens_are_those_of_the_model(served: Served) -> None:
    for last in range(4, 12):
        prompt = [*PROMPT, last]
        output = served.generate(prompt, max_tokens=20)
        expected = served.model.greedy(prompt, 20)
        assert list(output.token_ids) == expected
        assert output.finish_reason == ("length" if len(expected) == 20 else "stop")
        assert output.text == decode(expected)


def test_a_rewound_row_gives_what_a_fresh_one_gives(served: Served) -> None:
    for length in (40, 3, 1, 17):
        prompt = [4 + index % 9 for index in range(length)]
        assert list(served.generate(prompt, max_tokens=9).token_ids) == served.model.greedy(prompt, 9)


def test_a_prompt_that_ends_in_the_pad_id_is_not_cut(served: Served) -> None:
    prompt = [*PROMPT, PAD, PAD]
    assert served.model.greedy(prompt, 12) != served.model.greedy(PROMPT, 12)
    assert list(served.generate(prompt, max_tokens=12).token_ids) == served.model.greedy(prompt, 12)
    expected = BeamReference(served.model.logits, EOS, 3, 6).search(prompt)
    assert served.beams(prompt, max_tokens=6, num_beams=3, n=3) == expected


@pytest.mark.parametrize("token_id", [-1, VOCAB])
def test_ids_out_of_range_never_index_from_the_end(served: Served, token_id: int) -> None:
    with pytest.raises(InvalidInputError, match="outside 0 to"):
        served.generate([4, token_id], max_tokens=1)
    with pytest.raises(GenaiCallError, match="out of range"):
        served.engine.process.call("append", ids=[token_id], position=0, max_length=9, adapter=None, file="")
    assert list(served.generate(PROMPT, max_tokens=5).token_ids) == served.model.greedy(PROMPT, 5)


def test_every_way_of_sampling_works_as_on_the_continuous_runner(served: Served) -> None:
    sampled = served.generate(PROMPT, max_tokens=12, temperature=1.5, min_p=0.01, top_p=0.95, seed=3)
    assert served.generate(PROMPT, max_tokens=12, temperature=1.5, min_p=0.01, top_p=0.95, seed=3) != sampled
    again = served.generate(PROMPT, max_tokens=12, temperature=1.5, min_p=0.01, top_p=0.95, seed=3)
    assert again.token_ids == sampled.token_ids
    assert served.generate(PROMPT, max_tokens=3, logit_bias={11: 100.0}).token_ids == (11, 11, 11)
    assert served.generate(PROMPT, max_tokens=9, min_tokens=9, logit_bias={EOS: 50.0}).completion_tokens == 9


def test_log_probabilities_are_those_of_the_model(served: Served) -> None:
    output = served.generate(PROMPT, max_tokens=1, logprobs=True)
    row = served.model.logits(PROMPT)
    assert output.logprobs is not None
    assert output.logprobs[0].logprob == pytest.approx(row.max() - np.log(np.exp(row).sum()), abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 2},
        {"num_beams": 4, "n": 4},
        {"num_beams": 5, "n": 3, "length_penalty": 3.0},
        {"num_beams": 5, "n": 5, "length_penalty": -2.0},
        {"num_beams": 3, "n": 3, "min_tokens": 7},
        {"num_beams": 8, "n": 8, "max_tokens": 1},
    ],
    ids=str,
)
def test_beam_search_finds_what_the_reference_finds(served: Served, options: dict[str, Any]) -> None:
    ended = set()
    for first in range(4, 14):
        prompt, asked = [first, 9, 4 + (3 * first) % 17], {"max_tokens": 10, **options}
        reference = BeamReference(
            served.model.logits,
            EOS,
            asked["num_beams"],
            asked["max_tokens"],
            asked.get("length_penalty", 1.0),
            asked.get("min_tokens", 0),
        )
        found = served.beams(prompt, **asked)
        assert found == reference.search(prompt)[: asked.get("n", 1)]
        ended |= {len(ids) < asked["max_tokens"] for ids in found}
    assert ended == {True, False} or asked["max_tokens"] == 1


def test_a_stop_string_cuts_every_output_of_a_beam_search(served: Served) -> None:
    whole = served.generate([4, 9, 16], max_tokens=10, num_beams=3, n=3, min_tokens=8)
    stop = whole.text[3:5]
    cut = served.generate([4, 9, 16], max_tokens=10, num_beams=3, n=3, min_tokens=0, stop=[stop])
    assert all(stop not in output.text for output in (cut, *cut.alternatives))


def test_a_beam_search_without_end_is_refused_by_name(served: Served) -> None:
    with pytest.raises(InvalidInputError) as refused:
        served.generate(PROMPT, max_tokens=5, num_beams=2, ignore_eos=True)
    assert refused.value.field == "ignore_eos"


def test_sequences_beyond_those_kept_are_refused_not_read_from_memory(served: Served) -> None:
    call = served.engine.process.call
    options = {"num_beams": 3, "num_return_sequences": 2, "max_length": 9}
    call("start_beams", ids=PROMPT, options=options, adapter=None, file="")
    call("step_beams")
    with pytest.raises(GenaiCallError, match="keeps 2 outputs"):
        call("finish_beams", count=3)
    with pytest.raises(GenaiCallError, match="no beam search"):
        call("finish_beams", count=1)


@pytest.mark.parametrize("options", [{"max_length": 20.5}, {"length_penalty": float("nan")}, {"lenght_penalty": 2.0}])
def test_search_options_that_genai_does_not_take_are_errors(served: Served, options: dict[str, float]) -> None:
    wanted = {"num_beams": 2, "num_return_sequences": 1, "max_length": 9, **options}
    with pytest.raises(GenaiCallError):
        served.engine.process.call("start_beams", ids=PROMPT, options=wanted, adapter=None, file="")


def test_an_adapter_changes_its_own_jobs_only(served: Served) -> None:
    expected = served.adapted.greedy(PROMPT, 12)
    assert expected != served.model.greedy(PROMPT, 12)
    for _ in range(2):
        assert list(served.generate(PROMPT, max_tokens=12, adapter="law").token_ids) == expected
        assert list(served.generate(PROMPT, max_tokens=12).token_ids) == served.model.greedy(PROMPT, 12)
    reference = BeamReference(served.adapted.logits, EOS, 3, 6)
    assert served.beams(PROMPT, max_tokens=6, num_beams=3, n=3, adapter="law") == reference.search(PROMPT)


def test_an_unknown_adapter_is_refused_with_those_present(served: Served) -> None:
    with pytest.raises(InvalidInputError, match="no such adapter; present: law") as refused:
        served.generate(PROMPT, max_tokens=2, adapter="tax")
    assert refused.value.field == "sampling.adapter"


def test_adapters_unused_for_long_are_given_up(served: Served) -> None:
    directory = served.engine.info.directory
    others = {f"other{number}": served.model.adapted(20 + number) for number in range(9)}
    for name, model in others.items():
        model.write_adapter(directory, name)
        assert list(served.generate(PROMPT, max_tokens=6, adapter=name).token_ids) == model.greedy(PROMPT, 6)
    before = served.engine.stats()
    assert list(served.generate(PROMPT, max_tokens=12, adapter="law").token_ids) == served.adapted.greedy(PROMPT, 12)
    assert served.engine.stats().finished == before.finished + 1
