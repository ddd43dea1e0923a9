"""Whatever arrives together, every job's output is what it gets alone, and only running rows are computed."""

import time
from concurrent.futures import Future
from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from shared.errors import CancelledError, GenerationFailedError
from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner, decode
from workers.engine import Engine, EngineConfig, GenerationOutput, GenerationRequest

POISON = 127
CHUNK = 8
MAX_MODEL_LEN = 64
BLOCK_BYTES = CHUNK * 16


@dataclass(frozen=True)
class Job:
    prompt: tuple[int, ...]
    params: SamplingParams
    priority: int
    salt: str
    arrives: int
    cancelled: int | None


PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 3),
    top_p=st.sampled_from([1.0, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    stop=st.sampled_from([(), ("a",), ("é", "Q!")]),
)
# Few instructions, so that jobs share them whole, in part, or at another place than the start.
INSTRUCTIONS = st.sampled_from([(3,) * 24, (3,) * 24, (3,) * 16 + (4,) * 8, (4,) * 8 + (3,) * 8, ()])
PROMPTS = st.builds(
    lambda instruction, own: (*instruction, *own)[:40],
    INSTRUCTIONS,
    st.lists(st.integers(3, POISON), min_size=1, max_size=12),
)
JOBS = st.builds(
    Job,
    prompt=PROMPTS,
    params=PARAMS,
    priority=st.integers(0, 2),
    salt=st.sampled_from(["", "", "other"]),
    arrives=st.integers(0, 12),
    cancelled=st.sampled_from([None, None, None, 3, 9, 20]),
)
# What is there first, for long, and gives way.
BACKGROUND = st.builds(
    Job,
    prompt=PROMPTS,
    params=st.builds(SamplingParams, max_tokens=st.integers(8, 20), seed=st.integers(0, 3)),
    priority=st.just(2),
    salt=st.just(""),
    arrives=st.integers(0, 1),
    cancelled=st.none(),
)
MIXES = st.lists(JOBS, min_size=1, max_size=10) | st.builds(
    lambda background, others: background + others,
    st.lists(BACKGROUND, min_size=2, max_size=5),
    st.lists(JOBS, min_size=1, max_size=6),
)
CONFIGS = st.builds(
    EngineConfig,
    max_num_seqs=st.sampled_from([1, 2, 2, 3, 5]),
    max_num_batched_tokens=st.integers(1, 40),
    prefill_chunk_size=st.just(CHUNK),
    admission_wait_s=st.just(0.0),
    max_kv_tokens=st.none() | st.integers(MAX_MODEL_LEN, 3 * MAX_MODEL_LEN),
    max_swap_tokens=st.sampled_from([1000, 60, 20, 0]),
    max_preemptions=st.sampled_from([2, 3, 1, 0]),
    prefix_cache_bytes=st.sampled_from([1 << 20, 3 * BLOCK_BYTES, BLOCK_BYTES, 1, 0]),
    grouping_window=st.sampled_from([1, 3, 32]),
)
PLAIN = EngineConfig(1, CHUNK, CHUNK, admission_wait_s=0, prefix_cache_bytes=0)


def build(config: EngineConfig) -> tuple[Engine, FakeRunner]:
    runner = FakeRunner(max_num_seqs=config.max_num_seqs, max_model_len=MAX_MODEL_LEN)
    runner.poison = {POISON}
    return Engine(runner, decode, config), runner


def alone(job: Job) -> tuple[tuple[int, ...], str, str] | type[BaseException]:
    engine, _ = build(PLAIN)
    future = engine.submit(GenerationRequest("alone", job.prompt, job.params))
    while not future.done():
        engine.step()
    error = future.exception()
    return type(error) if error is not None else essence(future.result())


def essence(output: GenerationOutput) -> tuple[tuple[int, ...], str, str]:
    return output.token_ids, output.text, output.finish_reason


def check_limits(engine: Engine) -> None:
    config, scheduler = engine.config, engine._core._scheduler
    swapped = sum(sequence.swapped_kv.tokens for sequence in scheduler.waiting if sequence.swapped_kv is not None)
    assert swapped <= config.max_swap_tokens
    assert engine.stats().prefix_bytes <= config.prefix_cache_bytes
    assert len(scheduler.running) <= config.max_num_seqs
    if config.max_kv_tokens is not None:
        assert sum(sequence.reserved_tokens for sequence in scheduler.running) <= config.max_kv_tokens
    everybody = [*scheduler.running, *scheduler.waiting]
    assert max((sequence.preemptions for sequence in everybody), default=0) <= config.max_preemptions


def check_nothing_is_left(engine: Engine) -> None:
    engine.step()
    core, stats = engine._core, engine.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    assert not core._outputs._generations
    assert not core._scheduler._swapped
    assert not core._scheduler._with_deadline


@settings(deadline=None, max_examples=200)
@given(MIXES, CONFIGS)
def test_outputs_do_not_depend_on_the_mix_on_reuse_or_on_preemption(jobs: list[Job], config: EngineConfig) -> None:
    with capture_logs():  # printing a traceback for every poisoned job takes longer than all the rest
        check(jobs, config)


def check(jobs: list[Job], config: EngineConfig) -> None:
    engine, runner = build(config)
    futures: dict[int, Future[GenerationOutput]] = {}
    give_up = time.monotonic() + 20
    step = 0
    while len(futures) < len(jobs) or not all(future.done() for future in futures.values()):
        for index, job in enumerate(jobs):
            if job.arrives == step:
                futures[index] = engine.submit(
                    GenerationRequest(str(index), job.prompt, job.params, priority=job.priority, cache_salt=job.salt)
                )
            if job.cancelled == step:
                engine.cancel(str(index))
        engine.step()
        check_limits(engine)
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
    assert max(runner.decode_sizes, default=0) <= config.max_num_seqs
    assert max(runner.prefill_sizes, default=0) <= max(CHUNK, config.max_num_batched_tokens)
    event(f"reused {engine.stats().cached_tokens > 0}, preempted {engine.stats().preemptions > 0}")
    check_nothing_is_left(engine)
    engine.close()
