import threading
import time
from concurrent.futures import Future
from datetime import timedelta

import pytest

from shared.errors import GenerationFailedError
from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner, decode
from workers.engine import Engine, GenerationOutput, GenerationRequest
from workers.engine.model_runner import RowTokens
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sleeping_runner import SleepingRunner
from workers.idle_unload import IdleUnload


class Loads:
    """Counts what it made, and fails when told to."""

    def __init__(self) -> None:
        self.made: list[FakeRunner] = []
        self.fails = False

    def __call__(self) -> FakeRunner:
        if self.fails:
            raise MemoryError("no room")
        self.made.append(FakeRunner())
        return self.made[-1]


def submit(engine: Engine, name: str, prompt: list[int], tokens: int = 6) -> Future[GenerationOutput]:
    return engine.submit(GenerationRequest(name, prompt, SamplingParams(max_tokens=tokens, ignore_eos=True)))


def generate(engine: Engine, name: str, prompt: list[int]) -> tuple[int, ...]:
    return submit(engine, name, prompt).result(20).token_ids


def sleep_now(runner: SleepingRunner) -> None:
    end = time.monotonic() + 10
    while not runner.rest(runner.calls):
        assert time.monotonic() < end


def test_the_next_job_wakes_it_and_gets_what_it_always_got() -> None:
    loads = Loads()
    runner = SleepingRunner(loads)
    with Engine(runner, decode) as engine:
        before = generate(engine, "a", [7, 8, 9])
        sleep_now(runner)
        assert runner.asleep
        assert (runner.kv_bytes, loads.made[0].closed) == (0, 1)
        assert runner.max_num_seqs == engine.config.max_num_seqs == 4
        assert generate(engine, "b", [7, 8, 9]) == before
        assert not runner.asleep
    assert [made.warmed_up for made in loads.made] == [1, 1]
    assert loads.made[1].closed == 1


def test_a_call_since_the_check_keeps_it_awake() -> None:
    runner = SleepingRunner(Loads())
    calls = runner.calls
    runner.execute([RowTokens(0, [5], 0)])
    assert not runner.rest(calls)
    assert not runner.asleep
    assert runner.rest(runner.calls)
    assert not runner.rest(runner.calls)  # already


def test_it_does_not_unload_under_a_step() -> None:
    loads = Loads()
    runner = SleepingRunner(loads)
    loads.made[0].gate.clear()
    step = threading.Thread(target=runner.execute, args=([RowTokens(0, [5], 0)],))
    step.start()
    while runner.calls == 0:
        time.sleep(0.001)
    rested: list[bool] = []
    rest = threading.Thread(target=lambda: rested.append(runner.rest(runner.calls)))
    rest.start()
    time.sleep(0.02)
    assert (rested, loads.made[0].closed) == ([], 0)
    loads.made[0].gate.set()
    step.join()
    rest.join()
    assert loads.made[0].closed == 1


def test_jobs_that_arrive_while_it_unloads_lose_nothing() -> None:
    loads = Loads()
    runner = SleepingRunner(loads)
    expected = {}
    with Engine(FakeRunner(), decode) as plain:
        for number in range(30):
            expected[number] = generate(plain, str(number), [3, 4, 5 + number])
    done = threading.Event()
    with Engine(runner, decode) as engine:
        idle = IdleUnload(engine, timedelta(microseconds=1))

        def unload() -> None:
            while not done.is_set():
                idle.tick()

        unloading = threading.Thread(target=unload)
        unloading.start()
        try:
            for number in range(30):
                assert generate(engine, str(number), [3, 4, 5 + number]) == expected[number]
                time.sleep(0.002 * (number % 3))
        finally:
            done.set()
            unloading.join()
    assert len(loads.made) > 3


def test_a_model_that_does_not_load_again_fails_the_job_for_a_retry_and_is_noticed() -> None:
    loads = Loads()
    runner = SleepingRunner(loads)
    with Engine(runner, decode) as engine:
        idle = IdleUnload(engine, timedelta(minutes=30))
        sleep_now(runner)
        loads.fails = True
        with pytest.raises(GenerationFailedError):
            submit(engine, "a", [7]).result(20)
        assert idle.broken
        assert GenerationFailedError.retryable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_unloads_after_the_time_set_and_not_while_a_job_runs() -> None:
    loads, clock = Loads(), Clock()
    runner = SleepingRunner(loads)
    with Engine(runner, decode) as engine:
        idle = IdleUnload(engine, timedelta(minutes=30), clock)
        idle.tick()
        clock.now = 1790
        idle.tick()
        assert not runner.asleep
        generate(engine, "a", [7])
        clock.now = 1801  # the job came in between
        idle.tick()
        assert not runner.asleep
        loads.made[0].gate.clear()
        future = submit(engine, "b", [7], 2)
        clock.now = 9000
        while not engine.stats().running:
            time.sleep(0.001)
        idle.tick()
        clock.now = 18000
        idle.tick()
        assert not runner.asleep
        loads.made[0].gate.set()
        future.result(20)
        while engine.stats().running:
            time.sleep(0.001)
        idle.tick()
        clock.now = 18000 + 1801
        idle.tick()
        assert runner.asleep


def test_prefixes_kept_for_reuse_go_with_the_model() -> None:
    clock = Clock()
    runner = SleepingRunner(Loads())
    config = SchedulerConfig(max_num_seqs=runner.max_num_seqs, prefill_chunk_size=4)
    with Engine(runner, decode, config) as engine:
        idle = IdleUnload(engine, timedelta(minutes=30), clock)
        for name in ("a", "b", "c"):
            generate(engine, name, list(range(3, 20)))
        assert engine.stats().prefix_bytes > 0
        idle.tick()
        clock.now = 1801
        idle.tick()
        ends = time.monotonic() + 20
        while engine.stats().prefix_bytes:
            assert time.monotonic() < ends
            time.sleep(0.001)


def test_zero_keeps_it_and_other_runners_never_sleep() -> None:
    runner, clock = SleepingRunner(Loads()), Clock()
    for engine, after in ((Engine(runner, decode), timedelta(0)), (Engine(FakeRunner(), decode), timedelta(seconds=1))):
        idle = IdleUnload(engine, after, clock)
        idle.tick()
        clock.now += 10_000
        idle.tick()
        assert not idle.broken
        engine.close()
    assert not runner.asleep
