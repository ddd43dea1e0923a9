"""A worker process with a genai child: what is left of both when the worker stops or dies."""

import signal

import psutil
import pytest

from shared.settings import Settings
from shared.states import JobState
from tests import fake_model
from tests.fleet import FleetProcess, Jobs, StartProcess, wait_until
from tests.tiny_genai import TinyGenai

pytestmark = pytest.mark.servers

BEAMS = {"max_tokens": 1900, "min_tokens": 1900, "num_beams": 2}


@pytest.fixture(autouse=True)
def genai_model(fleet_settings: Settings) -> None:
    TinyGenai.random(vocab=128).write(fleet_settings.model_dir / fake_model.NAME / "1")


def child_of(worker: FleetProcess) -> psutil.Process:
    def children() -> list[psutil.Process]:
        return [p for p in psutil.Process(worker.process.pid).children() if "workers.engine.genai_child" in p.cmdline()]

    worker.wait_for("genai child ready")
    return children()[0]


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.usefixtures("maintenance")
def test_beams_and_plain_jobs_complete_side_by_side(jobs: Jobs, start_worker: StartProcess) -> None:
    worker = start_worker()
    ids = jobs.submit("beams", sampling={"max_tokens": 8, "num_beams": 3, "n": 2}) + jobs.submit("plain")
    jobs.wait_for_end(ids)
    assert jobs.states(ids) == {JobState.COMPLETED}
    assert child_of(worker)


@pytest.mark.usefixtures("maintenance")
def test_a_worker_stopped_in_mid_search_hands_it_back_and_leaves_no_child(
    jobs: Jobs, start_worker: StartProcess
) -> None:
    worker = start_worker(drain_timeout="0.2", genai_idle="60")
    ids = jobs.submit("beams", sampling=BEAMS)
    child = child_of(worker)
    wait_until(lambda: jobs.in_state(JobState.RUNNING, ids) == 1, why="a running job")
    child.send_signal(signal.SIGSTOP)  # in the middle of a call, for ever
    worker.terminate()
    assert worker.process.wait(20) == 0
    assert ended(child)
    assert jobs.states(ids) == {JobState.QUEUED}
    assert jobs.get(ids[0]).attempt == 0


@pytest.mark.usefixtures("maintenance")
def test_a_worker_killed_in_mid_search_leaves_no_child(jobs: Jobs, start_worker: StartProcess) -> None:
    worker = start_worker()
    jobs.submit("beams", sampling=BEAMS)
    child = child_of(worker)
    child.send_signal(signal.SIGSTOP)
    worker.kill()
    wait_until(lambda: ended(child), 10, "the end of the child")
