"""Reuse and preemption through the whole engine, on the fake runner."""

from collections.abc import Callable, Sequence

import pytest

from shared.errors import ConfigurationError, GenerationFailedError
from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner, decode
from workers.engine import Engine, EngineConfig, GenerationOutput, GenerationRequest
from workers.engine.model_runner import KvBlock

INSTRUCTION = [3 + index % 50 for index in range(400)]


def request(name: str, prompt: list[int], *, tokens: int = 4, priority: int = 0, salt: str = "") -> GenerationRequest:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    return GenerationRequest(name, prompt, params, priority=priority, cache_salt=salt)


def documents(count: int, salt: str = "") -> list[GenerationRequest]:
    return [request(f"{salt}{i}", [*INSTRUCTION, 60 + i % 60, 60 + i // 60], salt=salt) for i in range(count)]


def engine_of(runner: FakeRunner, **limits: int) -> Engine:
    return Engine(runner, decode, EngineConfig(runner.max_num_seqs, admission_wait_s=0, **limits))


def run(engine: Engine, requests: Sequence[GenerationRequest]) -> list[GenerationOutput]:
    futures = [engine.submit(item) for item in requests]
    while not all(future.done() for future in futures):
        engine.step()
    return [future.result(0) for future in futures]


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner(max_num_seqs=4, max_model_len=512)


def test_an_instruction_shared_by_200_documents_is_computed_once(runner: FakeRunner) -> None:
    engine = engine_of(runner)
    outputs = run(engine, documents(200))
    stats, shared = engine.stats(), 200 * len(INSTRUCTION)
    assert stats.cached_tokens == sum(output.cached_tokens for output in outputs) == 199 * 384
    assert stats.cached_tokens / shared > 0.95
    assert stats.prompt_tokens + stats.cached_tokens == 200 * 402
    assert outputs == sorted(outputs, key=lambda output: output.cached_tokens)
    assert (stats.prefix_blocks, stats.prefix_evictions, runner.saved) == (3, 0, 3)


def test_keys_do_not_meet(runner: FakeRunner) -> None:
    engine = engine_of(runner)
    run(engine, documents(3, salt="key-a"))
    assert [output.cached_tokens for output in run(engine, documents(2, salt="key-b"))] == [0, 384]


def test_prompts_of_their_own_are_not_copied(runner: FakeRunner) -> None:
    run(engine_of(runner), [request(str(i), [3 + i] * 300) for i in range(10)])
    assert runner.saved == 0


def test_without_a_budget_nothing_is_reused(runner: FakeRunner) -> None:
    outputs = run(engine_of(runner, prefix_cache_bytes=0), documents(5))
    assert {output.cached_tokens for output in outputs} == {0}
    assert runner.saved == 0


def test_the_last_chunk_is_computed_even_if_it_is_kept(runner: FakeRunner) -> None:
    engine = engine_of(runner)
    whole = [request(str(i), INSTRUCTION[:256]) for i in range(3)]
    run(engine, [request("longer", INSTRUCTION), *whole])
    assert [output.cached_tokens for output in run(engine, whole)] == [128] * 3
    assert [output.cached_tokens for output in run(engine, [request("again", INSTRUCTION)])] == [256]


def test_a_chunk_that_could_not_be_kept_costs_nobody_anything(
    runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: int) -> KvBlock:
        raise MemoryError

    expected = [output.token_ids for output in run(engine_of(FakeRunner(4, 512)), documents(3))]
    monkeypatch.setattr(runner, "save_kv", no_memory)
    assert [output.token_ids for output in run(engine_of(runner), documents(3))] == expected


def test_closing_forgets_the_prefixes(runner: FakeRunner) -> None:
    engine = engine_of(runner)
    run(engine, documents(3))
    engine.close()
    assert (engine.stats().prefix_blocks, engine.stats().prefix_bytes) == (0, 0)


def preempting(
    runner: FakeRunner, before: Callable[[Engine], None] = lambda _: None
) -> tuple[Engine, list[GenerationOutput | BaseException | None]]:
    engine = engine_of(runner)
    background = [engine.submit(request(f"low {i}", [3 + i] * 5, tokens=30, priority=6)) for i in range(4)]
    for _ in range(5):
        engine.step()
    urgent = [engine.submit(request(f"high {i}", [40 + i], tokens=5)) for i in range(2)]
    for _ in range(2):
        engine.step()
    before(engine)
    while not all(future.done() for future in [*background, *urgent]):
        engine.step()
    return engine, [future.exception(0) or future.result(0) for future in [*background, *urgent]]


def test_urgent_jobs_overtake_running_ones_whose_outputs_stay_the_same(runner: FakeRunner) -> None:
    engine, outputs = preempting(runner)
    assert engine.stats().preemptions == runner.loaded == 2
    assert engine.stats().swapped_bytes > 0
    for index, output in enumerate(outputs[:4]):
        (alone,) = run(engine_of(FakeRunner(1, 512)), [request("alone", [3 + index] * 5, tokens=30)])
        assert isinstance(output, GenerationOutput)
        assert output.token_ids == alone.token_ids


def test_a_preempted_job_can_be_cancelled_and_its_kv_goes(runner: FakeRunner) -> None:
    def cancel_preempted(engine: Engine) -> None:
        for sequence in list(engine._core._scheduler.waiting):
            assert sequence.swapped_kv is not None
            assert engine.cancel(sequence.request.id)
        engine.step()
        assert not engine._core._scheduler._swapped

    _, outcomes = preempting(runner, cancel_preempted)
    assert sum(isinstance(item, GenerationOutput) for item in outcomes) == 4


def test_a_job_whose_kv_cannot_be_kept_fails_alone_and_may_be_retried(
    runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: int) -> KvBlock:
        raise MemoryError

    monkeypatch.setattr(runner, "save_kv", no_memory)
    _, outcomes = preempting(runner)
    failed = [item for item in outcomes if isinstance(item, GenerationFailedError)]
    assert len(failed) == 2
    assert all(error.retryable for error in failed)
    assert sum(isinstance(item, GenerationOutput) for item in outcomes) == 4


def test_slots_are_full_while_somebody_waits(runner: FakeRunner) -> None:
    engine = engine_of(runner)
    run(engine, [request(str(i), [3 + i % 9] * 20, tokens=2 + i % 30) for i in range(60)])
    assert engine.stats().busy_occupancy >= 0.95
    assert engine.stats().busy_occupancy > engine.stats().occupancy


def test_kv_memory_for_less_than_one_sequence_is_refused(runner: FakeRunner) -> None:
    with pytest.raises(ConfigurationError, match="max_kv_tokens is 511"):
        engine_of(runner, max_kv_tokens=511)
