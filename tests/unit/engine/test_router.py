"""Each job goes to the runner that can serve it."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.errors import CancelledError, ModelUnsupportedError, WorkerStoppingError
from shared.sampling import SamplingParams
from tests.tiny_genai import TinyGenai
from tests.unit.engine.fake_runner import FakeRunner
from workers.engine import Engine, EngineConfig, GenerationOutput, GenerationRequest
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.engine.genai_engine import GenaiEngine
from workers.engine.router import Router, needs_genai

PROMPT = [4, 5, 6, 7]


def decode(ids: Sequence[int]) -> str:
    return "x" * len(ids)


@pytest.fixture
def model() -> TinyGenai:
    return TinyGenai.random()


@pytest.fixture
def directory(tmp_path: Path, model: TinyGenai) -> Path:
    model.adapted(9).write_adapter(model.write(tmp_path), "law")
    return tmp_path


@pytest.fixture
def genai(directory: Path) -> GenaiEngine:
    return GenaiEngine(directory, decode)


@pytest.fixture
def router(genai: GenaiEngine, runner: FakeRunner) -> Iterator[Router]:
    runner.scripts[tuple(PROMPT)] = [11] * 64
    with Router(genai, Engine(runner, decode, EngineConfig(max_num_seqs=4))) as router:
        yield router


def generate(router: Router, name: str = "job", **params: Any) -> GenerationOutput:  # noqa: ANN401  # any parameter
    return router.submit(GenerationRequest(name, PROMPT, SamplingParams(max_tokens=6, **params))).result(60)


def test_only_beams_and_adapters_need_genai() -> None:
    assert not needs_genai(SamplingParams(n=4, temperature=1.0, logprobs=True, regex="a+"))
    assert needs_genai(SamplingParams(num_beams=2))
    assert needs_genai(SamplingParams(adapter="law"))


def test_plain_jobs_start_no_child(router: Router, genai: GenaiEngine, runner: FakeRunner) -> None:
    assert generate(router).token_ids == (11,) * 6
    assert runner.warmed_up == 1
    assert genai.process.pid is None
    assert (router.runner, router.config.max_num_seqs) == (runner, 4)


def test_each_job_goes_to_the_runner_that_can_serve_it(router: Router, model: TinyGenai) -> None:
    assert list(generate(router, adapter="law").token_ids) == model.adapted(9).greedy(PROMPT, 6)
    assert len(generate(router, num_beams=3, n=3).alternatives) == 2
    assert generate(router).token_ids == (11,) * 6
    stats = router.stats()
    assert (stats.finished, stats.max_num_seqs, stats.on_genai) == (3, 4, 0)
    assert stats.genai_bytes > 1 << 20


def test_jobs_of_both_are_cancelled_drained_and_handed_back(router: Router, runner: FakeRunner) -> None:
    runner.gate.clear()
    plain = router.submit(GenerationRequest("plain", PROMPT, SamplingParams(max_tokens=50)))
    beams = router.submit(GenerationRequest("beams", PROMPT, SamplingParams(max_tokens=1500, num_beams=2)))
    assert router.cancel("beams")
    with pytest.raises(CancelledError):
        beams.result(0)
    assert not router.cancel("beams")
    while not runner.calls:  # it must be running, not waiting, to be cut short
        time.sleep(0.005)
    assert not router.drain(0)
    with pytest.raises(WorkerStoppingError):
        plain.result(0)
    for params in (SamplingParams(max_tokens=9), SamplingParams(num_beams=2), SamplingParams(adapter="law")):
        with pytest.raises(WorkerStoppingError):
            router.submit(GenerationRequest("late", PROMPT, params))
    runner.gate.set()


def test_a_graph_the_continuous_runner_refuses_is_served_by_genai(genai: GenaiEngine, model: TinyGenai) -> None:
    with pytest.raises(ModelUnsupportedError, match="use the genai runner"):
        ContinuousRunner(genai.info.directory, RunnerConfig(1, 64, 1))
    with Router(genai) as router:
        assert genai.process.pid is not None
        assert list(generate(router).token_ids) == model.greedy(PROMPT, 6)
        assert generate(router, temperature=1.0, seed=4, top_k=3) is not None
        stats = router.stats()
        assert (stats.on_genai, stats.finished, router.config.max_num_seqs) == (1, 2, 1)
    assert genai.process.pid is None


def test_a_model_neither_can_load_does_not_start(genai: GenaiEngine) -> None:
    (genai.info.directory / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelUnsupportedError, match="onnxruntime-genai cannot run"), Router(genai):
        pass
