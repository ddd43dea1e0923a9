"""The genai child's life: it ends with its worker, its idle time, its cancelled calls; and costs no job for good."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest

from shared.errors import CancelledError, DeadlineExceededError, GenerationFailedError, WorkerStoppingError
from shared.sampling import SamplingParams
from tests.tiny_genai import TinyGenai
from workers.engine.genai_engine import GenaiConfig, GenaiEngine
from workers.engine.genai_process import IDLE_POLL_S
from workers.engine.sequence import GenerationOutput, GenerationRequest

PROMPT = [4, 5, 6, 7]
LONG = SamplingParams(max_tokens=3000, min_tokens=3000)
LONG_BEAMS = LONG.model_copy(update={"num_beams": 2})
SHORT = SamplingParams(max_tokens=4)
KINDS = pytest.mark.parametrize("params", [LONG, LONG_BEAMS], ids=["row", "beams"])


def decode(ids: Sequence[int]) -> str:
    return "x" * len(ids)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> None:
    """Take the place of the check of every test: lanes live as long as the engine of this module."""


@pytest.fixture(scope="module")
def model() -> TinyGenai:
    return TinyGenai.random()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, model: TinyGenai) -> Path:
    return model.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(directory: Path) -> Iterator[GenaiEngine]:
    with GenaiEngine(directory, decode, GenaiConfig(max_model_len=4096)) as engine:
        yield engine


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come about")
        time.sleep(0.01)


def begin(engine: GenaiEngine, params: SamplingParams, deadline: float | None = None) -> Future[GenerationOutput]:
    """Submit `job` and return once it has some tokens."""
    before = engine.stats().generated_tokens
    future = engine.submit(GenerationRequest("job", PROMPT, params, deadline=deadline))
    wait_until(lambda: engine.stats().generated_tokens > before + 2 or future.done())
    return future


def short_job_works(engine: GenaiEngine, model: TinyGenai) -> bool:
    output = engine.submit(GenerationRequest("next", PROMPT, SHORT)).result(30)
    return list(output.token_ids) == model.greedy(PROMPT, 4)


@KINDS
def test_a_cancelled_job_ends_between_two_tokens(engine: GenaiEngine, model: TinyGenai, params: SamplingParams) -> None:
    before = engine.stats().generated_tokens
    future = begin(engine, params)
    assert engine.cancel("job")
    with pytest.raises(CancelledError):
        future.result(1)
    assert not engine.cancel("job")
    assert short_job_works(engine, model)
    assert engine.stats().generated_tokens < before + 3000


@KINDS
def test_a_deadline_ends_a_job_between_two_tokens(
    engine: GenaiEngine, model: TinyGenai, params: SamplingParams
) -> None:
    engine.load()
    future = begin(engine, params, deadline=time.monotonic() + 0.3)
    with pytest.raises(DeadlineExceededError):
        future.result(10)
    assert short_job_works(engine, model)


def test_a_deadline_passes_while_a_search_waits_for_another(engine: GenaiEngine) -> None:
    running = begin(engine, LONG_BEAMS)
    late = engine.submit(GenerationRequest("late", PROMPT, LONG_BEAMS, deadline=time.monotonic() + 0.05))
    with pytest.raises(DeadlineExceededError):
        late.result(5)
    assert not running.done()
    assert engine.cancel("job")


@KINDS
def test_a_child_killed_in_mid_job_costs_an_attempt_and_no_more(
    engine: GenaiEngine, model: TinyGenai, params: SamplingParams
) -> None:
    failures = engine.stats().failed
    future = begin(engine, params)
    assert engine.process.pid is not None
    os.kill(engine.process.pid, signal.SIGKILL)
    with pytest.raises(GenerationFailedError) as failed:
        future.result(10)
    assert failed.value.retryable
    assert short_job_works(engine, model)
    assert engine.stats().failed == failures + 1


@KINDS
def test_closing_with_a_job_running_leaves_no_child_behind(directory: Path, params: SamplingParams) -> None:
    engine = GenaiEngine(directory, decode, GenaiConfig(max_model_len=4096))
    future, pid = begin(engine, params), engine.process.pid
    assert pid is not None
    engine.close()
    with pytest.raises(WorkerStoppingError):
        future.result(1)
    assert not psutil.pid_exists(pid)
    engine.close()


def test_draining_lets_what_runs_finish_and_hands_back_what_waits(directory: Path) -> None:
    engine = GenaiEngine(directory, decode)
    params = SamplingParams(max_tokens=300, min_tokens=300, num_beams=2)
    running = begin(engine, params)
    waiting = engine.submit(GenerationRequest("waiting", PROMPT, params))
    assert engine.drain(30)
    assert running.result(0).completion_tokens == 300
    with pytest.raises(WorkerStoppingError):
        waiting.result(0)
    for refused in (SHORT, params):
        with pytest.raises(WorkerStoppingError):
            engine.submit(GenerationRequest("refused", PROMPT, refused))
    engine.close()


def test_an_idle_child_gives_its_memory_back_and_comes_again(directory: Path, model: TinyGenai) -> None:
    with GenaiEngine(directory, decode, GenaiConfig(idle_s=0.1)) as engine:
        assert engine.process.pid is None
        assert short_job_works(engine, model)
        assert engine.child_bytes() > 1 << 20
        wait_until(lambda: engine.process.pid is None)
        assert engine.child_bytes() == 0
        assert short_job_works(engine, model)


def test_a_child_in_use_is_never_idle(directory: Path, model: TinyGenai) -> None:
    with GenaiEngine(directory, decode, GenaiConfig(idle_s=1.0)) as engine:
        engine.load()
        first, end = engine.process.pid, time.monotonic() + 1.0 + 2 * IDLE_POLL_S
        while time.monotonic() < end:
            assert short_job_works(engine, model)
        assert engine.process.pid == first


def test_a_call_nobody_waits_for_is_cut_off(engine: GenaiEngine, model: TinyGenai) -> None:
    engine.load()
    first = engine.process.pid
    os.kill(first or 0, signal.SIGSTOP)  # the prompt of the search takes for ever
    future = engine.submit(GenerationRequest("job", PROMPT, LONG_BEAMS))
    wait_until(lambda: engine.stats().running == 1)
    assert engine.cancel("job")
    with pytest.raises(CancelledError):
        future.result(0)
    assert short_job_works(engine, model)
    assert engine.process.pid != first


def test_a_child_ends_when_its_worker_is_killed_in_mid_call(directory: Path) -> None:
    script = f"""
import os, signal, sys
from pathlib import Path
from workers.engine.genai_engine import GenaiEngine
engine = GenaiEngine(Path({str(directory)!r}), lambda ids: "")
engine.load()
os.kill(engine.process.pid, signal.SIGSTOP)
sys.stdout.write(f"pid={{engine.process.pid}}\\n")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    worker = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert worker.returncode == -signal.SIGKILL
    pid = int(worker.stdout.rpartition("pid=")[2])
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_the_memory_of_the_child_is_limited_and_it_is_the_first_to_be_killed(engine: GenaiEngine) -> None:
    engine.load()
    process = Path(f"/proc/{engine.process.pid}")
    limits = next(line for line in (process / "limits").read_text().splitlines() if line.startswith("Max data size"))
    assert 0 < int(limits.split()[3]) <= psutil.virtual_memory().total
    assert (process / "oom_score_adj").read_text().strip() == "1000"


def test_no_thread_is_left_behind(directory: Path, model: TinyGenai) -> None:
    before = set(threading.enumerate())
    with GenaiEngine(directory, decode) as engine:
        assert short_job_works(engine, model)
        engine.submit(GenerationRequest("beams", PROMPT, SHORT.model_copy(update={"num_beams": 2}))).result(30)
    wait_until(lambda: set(threading.enumerate()) <= before)
