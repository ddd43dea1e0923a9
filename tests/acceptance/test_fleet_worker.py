"""Worker and maintenance processes on real servers, with a model that has no weights."""

import base64
import json
import signal
from functools import partial
from pathlib import Path

import pytest
import redis
from sqlalchemy import func, select

from shared.database import Database
from shared.models import Result, WorkerHeartbeat
from shared.states import JobState
from tests import fake_model
from tests.fleet import FleetProcess, Jobs, StartProcess, wait_until

pytestmark = pytest.mark.servers

SLOTS, HELD = 4, 6  # see conftest.py; a worker holds some jobs more than it has slots


def one_result_each(database: Database, job_ids: list[str]) -> bool:
    with database.transaction() as session:
        results = session.scalar(select(func.count()).select_from(Result).where(Result.job_id.in_(job_ids)))
    return results == len(job_ids)


def fences_are_contiguous(jobs: Jobs, job_ids: list[str]) -> bool:
    return all(
        [attempt.fence for attempt in jobs.attempts(job_id)] == list(range(1, jobs.get(job_id).fence + 1))
        for job_id in job_ids
    )


def heartbeat_status(database: Database) -> list[str]:
    with database.transaction() as session:
        return list(session.scalars(select(WorkerHeartbeat.status).order_by(WorkerHeartbeat.started_at)))


@pytest.mark.usefixtures("maintenance")
def test_jobs_of_all_kinds_complete(jobs: Jobs, start_worker: StartProcess, database: Database) -> None:
    start_worker()
    ids = jobs.submit(*[f"document {number}" for number in range(40)])
    jobs.wait_for_end(ids)
    assert jobs.states(ids) == {JobState.COMPLETED}
    assert one_result_each(database, ids)
    assert all(jobs.output(job_id) for job_id in ids)


@pytest.mark.usefixtures("maintenance")
def test_a_worker_killed_in_mid_job_costs_no_job_and_no_second_result(
    jobs: Jobs, start_worker: StartProcess, database: Database
) -> None:
    first = start_worker(step_seconds=0.05)
    ids = jobs.submit(*[f"document {number}" for number in range(6)], max_tokens=40)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) >= 4, why="four running jobs")
    first.kill()
    start_worker()
    jobs.wait_for_end(ids)
    assert jobs.states(ids) == {JobState.COMPLETED}
    assert one_result_each(database, ids)
    assert fences_are_contiguous(jobs, ids)
    assert {"lost", "queued"} & {str(attempt.outcome) for job_id in ids for attempt in jobs.attempts(job_id)}


@pytest.mark.usefixtures("maintenance")
def test_a_wiped_broker_loses_no_job(jobs: Jobs, start_worker: StartProcess, redis_client: "redis.Redis") -> None:
    ids = jobs.submit(*[f"document {number}" for number in range(50)])
    wait_until(lambda: redis_client.llen("tokenmill.fake:3") == 50, why="fifty messages")
    redis_client.flushall()
    start_worker()
    jobs.wait_for_end(ids, 30)
    assert jobs.states(ids) == {JobState.COMPLETED}


@pytest.mark.usefixtures("maintenance")
def test_a_prompt_that_kills_its_worker_dies_alone(jobs: Jobs, start_worker: StartProcess) -> None:
    ids = jobs.submit(*[f"document {number}" for number in range(3)], fake_model.POISON, max_tokens=16)

    def ended_or_killed(worker: FleetProcess) -> bool:
        return worker.process.poll() is not None or not jobs.states(ids) & {JobState.QUEUED, JobState.RUNNING}

    for _ in range(4):
        worker = start_worker(step_seconds=0.01)
        wait_until(partial(ended_or_killed, worker), why="the poison or the end")
        if worker.process.poll() is None:
            break
    assert [jobs.get(job_id).state for job_id in ids] == [JobState.COMPLETED] * 3 + [JobState.DEAD]
    assert jobs.get(ids[3]).attempt == 3
    assert all(jobs.get(job_id).attempt <= 2 for job_id in ids[:3])


@pytest.mark.usefixtures("maintenance")
def test_sigterm_lets_running_jobs_finish_and_takes_no_more(
    jobs: Jobs, start_worker: StartProcess, database: Database
) -> None:
    worker = start_worker(step_seconds=0.02)
    ids = jobs.submit(*[f"document {number}" for number in range(12)], max_tokens=50)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) == HELD, why="as many jobs as the worker holds")
    worker.terminate()
    assert worker.process.wait(20) == 0
    assert jobs.in_state(JobState.COMPLETED, ids) == SLOTS
    assert jobs.in_state(JobState.QUEUED, ids) == 12 - SLOTS
    assert heartbeat_status(database) == ["stopped"]
    start_worker()
    jobs.wait_for_end(ids)
    assert {jobs.get(job_id).attempt for job_id in ids} == {1}


@pytest.mark.usefixtures("maintenance")
def test_a_drain_that_takes_too_long_hands_jobs_back_free(jobs: Jobs, start_worker: StartProcess) -> None:
    worker = start_worker(step_seconds=0.1, drain_timeout="0.5")
    ids = jobs.submit("first", "second", max_tokens=500)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) == 2, why="two running jobs")
    worker.terminate()
    assert worker.process.wait(20) == 0
    assert jobs.states(ids) == {JobState.QUEUED}
    assert {jobs.get(job_id).attempt for job_id in ids} == {0}


@pytest.mark.usefixtures("maintenance")
def test_a_second_sigterm_hands_jobs_back_at_once(jobs: Jobs, start_worker: StartProcess) -> None:
    worker = start_worker(step_seconds=0.1)
    ids = jobs.submit("first", "second", max_tokens=500)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) == 2, why="two running jobs")
    worker.terminate()
    worker.wait_for("worker draining")
    worker.process.send_signal(signal.SIGINT)
    assert worker.process.wait(10) == 0
    assert jobs.states(ids) == {JobState.QUEUED}


@pytest.mark.usefixtures("maintenance")
def test_a_cancelled_job_stops_within_seconds(jobs: Jobs, start_worker: StartProcess) -> None:
    start_worker(step_seconds=0.1, heartbeat="1")
    (job_id,) = jobs.submit("cancel me", max_tokens=2000)
    wait_until(lambda: jobs.get(job_id).state == JobState.RUNNING, why="a running job")
    jobs.change(job_id, cancel_requested_at=func.now())
    wait_until(lambda: jobs.get(job_id).state == JobState.CANCELLED, 5, "the cancellation")


def cores_of(pid: int) -> set[str]:
    statuses = [Path(f"/proc/{pid}/status"), *Path(f"/proc/{pid}/task").glob("*/status")]
    lines = [line for status in statuses for line in status.read_text().splitlines()]
    return {line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")}


def test_every_thread_of_a_worker_stays_on_its_cores(jobs: Jobs, start_worker: StartProcess) -> None:
    worker = start_worker(step_seconds=0.01)
    jobs.submit("one")
    assert cores_of(worker.pid) == {"0"}
    with jobs.database.transaction() as session:
        assert session.scalars(select(WorkerHeartbeat.cores)).all() == [[0]]


@pytest.mark.usefixtures("maintenance")
def test_the_broker_and_the_logs_never_see_a_prompt(
    jobs: Jobs, start_worker: StartProcess, redis_client: "redis.Redis", tmp_path: Path
) -> None:
    canary = "canary-7f3a9c51"
    ids = jobs.submit(*[f"{canary} {number}" for number in range(10)])
    wait_until(lambda: redis_client.llen("tokenmill.fake:3") == 10, why="ten messages")
    messages = [json.loads(message) for message in redis_client.lrange("tokenmill.fake:3", 0, -1)]
    bodies = [json.loads(base64.b64decode(message["body"])) for message in messages]
    assert {tuple(arguments) for arguments, _, _ in bodies} == {(job_id,) for job_id in ids}
    assert all(keywords == {} for _, keywords, _ in bodies)
    assert canary not in json.dumps(messages)
    with redis_client.monitor() as monitor:  # type: ignore[no-untyped-call]  # redis-py
        start_worker(log_level="DEBUG")
        jobs.wait_for_end(ids)
        redis_client.set("end", 1)
        for command in monitor.listen():
            assert canary not in command["command"]
            if command["command"] == "SET end 1":
                break
    assert not any(canary in log.read_text(errors="replace") for log in tmp_path.glob("*.log"))
