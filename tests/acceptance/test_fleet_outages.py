"""Servers that die, hang and come back under a running fleet. The servers are this file's own."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from cli.embedded.postgres import PostgresServer
from cli.embedded.valkey import ValkeyServer
from shared import migrate
from shared.database import Database
from shared.states import JobState
from tests.fleet import FleetProcess, Jobs, StartProcess, wait_until
from tests.servers import discard

pytestmark = pytest.mark.servers


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    with tempfile.TemporaryDirectory(prefix="tokenmill-outage-") as directory:
        server = ValkeyServer(Path(directory))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def redis_url(valkey: ValkeyServer) -> str:
    """Override the session's server: this one may be killed."""
    return valkey.url


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="tokenmill-outage-") as directory:
        server = PostgresServer(Path(directory))
        server.start()
        migrate.upgrade(server.url)
        yield server
        discard(server)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """Override the session's server: this one may be killed."""
    return postgres.url


def kill_and_restart(server: ValkeyServer | PostgresServer) -> None:
    found = server.find()
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    wait_until(lambda: not server.answers(), 10, "the server's death")
    server.stop()
    server.start()


def connections(url: str) -> int:
    with closing(redis.Redis.from_url(url)) as client:
        return len(client.client_list())


@pytest.mark.usefixtures("maintenance")
def test_a_worker_consumes_again_after_the_broker_was_killed(
    jobs: Jobs, start_worker: StartProcess, valkey: ValkeyServer
) -> None:
    start_worker(step_seconds=0.01)
    ids = jobs.submit(*[f"before {number}" for number in range(8)], max_tokens=40)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) > 0, why="running jobs")
    kill_and_restart(valkey)
    ids += jobs.submit(*[f"after {number}" for number in range(8)])
    jobs.wait_for_end(ids, 60)
    assert jobs.states(ids) == {JobState.COMPLETED}


@pytest.mark.usefixtures("maintenance")
def test_three_restarts_of_the_broker_leave_no_deaf_worker_and_no_stale_connections(
    jobs: Jobs, start_worker: StartProcess, valkey: ValkeyServer
) -> None:
    start_worker()
    jobs.wait_for_end(jobs.submit("warm"))
    before = connections(valkey.url)
    for round_ in range(3):
        kill_and_restart(valkey)
        ids = jobs.submit(*[f"{round_} {number}" for number in range(5)])
        jobs.wait_for_end(ids, 60)
        assert jobs.states(ids) == {JobState.COMPLETED}
    assert connections(valkey.url) <= before + 2


@pytest.mark.usefixtures("maintenance")
def test_a_broker_that_hangs_delays_jobs_and_loses_none(
    jobs: Jobs, start_worker: StartProcess, valkey: ValkeyServer
) -> None:
    start_worker(step_seconds=0.01)
    found = valkey.find()
    assert found is not None
    ids = jobs.submit(*[f"before {number}" for number in range(4)], max_tokens=40)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) >= 4, why="running jobs")
    os.kill(found.pid, signal.SIGSTOP)
    wait_until(lambda: jobs.states(ids) == {JobState.COMPLETED}, 20, "jobs that run need no broker")
    ids += jobs.submit("while it hangs")
    os.kill(found.pid, signal.SIGCONT)
    jobs.wait_for_end(ids, 60)
    assert jobs.states(ids) == {JobState.COMPLETED}


def test_a_database_killed_in_mid_job_costs_no_result(
    jobs: Jobs, start_worker: StartProcess, maintenance: FleetProcess, postgres: PostgresServer, database: Database
) -> None:
    worker = start_worker(step_seconds=0.05, lease="20")
    ids = jobs.submit(*[f"document {number}" for number in range(6)], max_tokens=40)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) >= 4, why="running jobs")
    database.close()
    kill_and_restart(postgres)
    jobs.wait_for_end(ids, 60)
    assert jobs.states(ids) == {JobState.COMPLETED}
    assert {jobs.get(job_id).attempt for job_id in ids} == {1}
    assert worker.process.poll() is None
    assert maintenance.process.poll() is None
