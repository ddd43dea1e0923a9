"""Whatever arrives together, every job's output is what it gets alone, and only running rows are computed."""

import time
from concurrent.futures import Future
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import CancelledError, GenerationFailedError
from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner, decode
from workers.engine import Engine, EngineConfig, GenerationOutput, GenerationRequest

POISON = 127
CHUNK = 8


@dataclass(frozen=True)
class Job:
    prompt: tuple[int, ...]
    params: SamplingParams
    priority: int
    arrives: int
    cancelled: int | None


PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 20),
    temperature=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 3),
    top_p=st.sampled_from([1.0, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    stop=st.sampled_from([(), ("a",), ("é", "Q!")]),
)
JOBS = st.builds(
    Job,
    prompt=st.lists(st.integers(3, POISON), min_size=1, max_size=40).map(tuple),
    params=PARAMS,
    priority=st.integers(0, 2),
    arrives=st.integers(0, 12),
    cancelled=st.none() | st.integers(0, 20),
)


def build(rows: int, budget: int) -> tuple[Engine, FakeRunner]:
    runner = FakeRunner(max_num_seqs=rows, max_model_len=64)
    runner.poison = {POISON}
    return Engine(runner, decode, EngineConfig(rows, budget, CHUNK, admission_wait_s=0)), runner


def alone(job: Job) -> tuple[tuple[int, ...], str, str] | type[BaseException]:
    engine, _ = build(rows=1, budget=CHUNK)
    future = engine.submit(GenerationRequest("alone", job.prompt, job.params))
    while not future.done():
        engine.step()
    error = future.exception()
    return type(error) if error is not None else essence(future.result())


def essence(output: GenerationOutput) -> tuple[tuple[int, ...], str, str]:
    return output.token_ids, output.text, output.finish_reason


@settings(deadline=None, max_examples=50)
@given(st.lists(JOBS, min_size=1, max_size=10), st.integers(1, 5), st.integers(1, 40))
def test_outputs_do_not_depend_on_the_mix(jobs: list[Job], rows: int, budget: int) -> None:
    engine, runner = build(rows, budget)
    futures: dict[int, Future[GenerationOutput]] = {}
    give_up = time.monotonic() + 20
    step = 0
    while len(futures) < len(jobs) or not all(future.done() for future in futures.values()):
        for index, job in enumerate(jobs):
            if job.arrives == step:
                futures[index] = engine.submit(
                    GenerationRequest(str(index), job.prompt, job.params, priority=job.priority)
                )
            if job.cancelled == step:
                engine.cancel(str(index))
        engine.step()
        step += 1
        assert time.monotonic() < give_up
    for index, job in enumerate(jobs):
        error = futures[index].exception()
        if isinstance(error, CancelledError):
            assert job.cancelled is not None
        elif isinstance(error, GenerationFailedError):
            assert alone(job) is GenerationFailedError
        else:
            assert essence(futures[index].result()) == alone(job)
    assert max(runner.decode_sizes, default=0) <= rows
    assert max(runner.prefill_sizes, default=0) <= CHUNK
    engine.step()
    stats = engine.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    assert not engine._core._outputs._generations
    engine.close()
