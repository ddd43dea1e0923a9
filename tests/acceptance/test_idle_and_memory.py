"""A worker gives its memory back when idle, and itself when it takes too much; no job pays for either."""

from functools import partial
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from shared.database import Database
from shared.models import WorkerHeartbeat
from shared.sampling import SamplingParams
from shared.states import JobState
from shared.tokenizer import ChatTokenizer
from tests import fake_model
from tests.fleet import Jobs, StartProcess, wait_until
from workers.engine import Engine, GenerationRequest
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.engine.sleeping_runner import SleepingRunner


@pytest.mark.model
def test_an_unloaded_model_leaves_the_memory_and_comes_back_the_same(model_dir_int8: Path) -> None:
    tokenizer = ChatTokenizer.from_directory(model_dir_int8)
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Name three rivers."}])
    runner = SleepingRunner(partial(ContinuousRunner, model_dir_int8, RunnerConfig(8, 2048, 1)))
    with Engine(runner, tokenizer.decode) as engine:

        def generate(name: str) -> tuple[int, ...]:
            request = GenerationRequest(name, prompt, SamplingParams(max_tokens=12))
            return engine.submit(request).result(120).token_ids

        before = generate("a")
        wait_until(lambda: not engine.stats().running, why="an idle engine")
        kv_bytes, resident = runner.kv_bytes, psutil.Process().memory_info().rss
        assert runner.rest(runner.calls)
        freed = resident - psutil.Process().memory_info().rss
        assert freed > kv_bytes / 2
        assert generate("b") == before
        assert runner.kv_bytes == kv_bytes


def figures(database: Database) -> list[str]:
    with database.transaction() as session:
        return [str(row["model"]) for row in session.scalars(select(WorkerHeartbeat.figures)) if "model" in row]


@pytest.mark.servers
@pytest.mark.usefixtures("maintenance")
def test_an_idle_worker_unloads_says_so_and_serves_the_next_job(
    jobs: Jobs, start_worker: StartProcess, database: Database
) -> None:
    worker = start_worker(idle_unload="0.5")
    wait_until(lambda: figures(database) == ["unloaded"], why="an unloaded model")
    (job_id,) = jobs.submit("wake up")
    jobs.wait_for_end([job_id])
    assert jobs.get(job_id).state == JobState.COMPLETED
    assert jobs.get(job_id).attempt == 1
    assert worker.says("model loaded again")


@pytest.mark.servers
@pytest.mark.usefixtures("maintenance")
def test_a_worker_over_its_limit_hands_its_jobs_back_and_ends(jobs: Jobs, start_worker: StartProcess) -> None:
    caches = {"prefix_cache_mb": "0", "kv_swap_mb": "0", "drain_timeout": "0.5"}
    worker = start_worker(step_seconds=0.1, worker_memory_mb="500", **caches)
    ids = jobs.submit(f"take it {fake_model.GREEDY}", "the neighbour", max_tokens=200)
    wait_until(lambda: worker.process.poll() is not None, 60, "the worker's end")
    assert worker.process.returncode == 1
    assert worker.says("over the memory limit: caches are dropped")
    assert jobs.in_state(JobState.DEAD, ids) == 0
    start_worker(worker_memory_mb="4000", **caches)
    jobs.wait_for_end(ids)
    assert jobs.states(ids) == {JobState.COMPLETED}
