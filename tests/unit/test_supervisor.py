import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cli.embedded.process import ProcessIdentity, wait_until
from cli.supervisor import fleet_file
from cli.supervisor.backoff import LONGEST_SECONDS, Backoff
from cli.supervisor.child import Child
from cli.supervisor.core_sets import core_sets, usable_cores, written
from cli.supervisor.fleet_file import Fleet
from cli.supervisor.leftovers import end_children
from cli.supervisor.lock import holder, supervisor_lock
from cli.supervisor.process_spec import ProcessSpec
from cli.supervisor.roles import Addresses, child_environment
from cli.supervisor.stop_request import StopRequest
from cli.supervisor.supervisor import Supervisor
from shared.errors import StateConflictError
from shared.settings import Settings

SLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)
WATCHED = (
    "import os, sys, time; from shared.parent_watch import end_with_parent; "
    "end_with_parent(int(os.environ['TOKENMILL_SUPERVISOR_PID'])); print('watching', flush=True); time.sleep(600)"
)


def spec(code: str, role: str = "worker", number: int | None = None, **changes: float) -> ProcessSpec:
    arguments = (sys.executable, "-c", code)
    return replace(ProcessSpec(role, arguments, dict(os.environ), number=number), **changes)  # type: ignore[arg-type]  # floats only


def empty_fleet(state_dir: Path) -> Fleet:
    return Fleet(str(state_dir), "http://api", "http://flower", "key", "model", "database", "redis")


def test_backoff_doubles_to_its_limit_and_forgets_after_a_stable_run() -> None:
    backoff = Backoff()
    pauses = [backoff.after_run_of(0.1) for _ in range(8)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert pauses[-1] == LONGEST_SECONDS
    assert backoff.after_run_of(60.0) == 0.5


def test_a_crashing_child_is_started_again_after_the_pause_only(tmp_path: Path) -> None:
    now = 0.0
    child = Child(spec("raise SystemExit(3)"), tmp_path, clock=lambda: now)
    child.tick()
    assert wait_until(lambda: not child.running, 10)
    child.tick()
    assert (child.restarts, child.entry()) == (1, None)
    child.tick()
    assert not child.running
    now = 0.5
    child.tick()
    assert wait_until(lambda: not child.running, 10)
    child.tick()
    assert child.restarts == 2


def test_a_deaf_child_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    child = Child(spec(STUBBORN, number=1), tmp_path)
    child.tick()
    assert wait_until(lambda: "deaf" in (tmp_path / "logs" / "worker-1.log").read_text(), 10)
    child.ask_to_stop()
    began = time.monotonic()
    child.finish(began + 0.3, hurry=lambda: False)
    assert not child.running
    assert 0.25 < time.monotonic() - began < 5


def test_draining_stops_workers_first_and_writes_down_that_nothing_runs(tmp_path: Path) -> None:
    order = tmp_path / "order"
    code = (
        "import signal, sys, time\n"
        f"def end(*_): open({str(order)!r}, 'a').write(sys.argv[1] + ' '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(600)"
    )
    specs = [replace(spec(code, role), arguments=(sys.executable, "-c", code, role)) for role in ("api", "worker")]
    stop = StopRequest()
    supervisor = Supervisor(empty_fleet(tmp_path), [], specs, stop)
    supervisor.tick()
    running = fleet_file.read(tmp_path)
    assert running is not None
    assert [process.role for process in running.alive()] == ["supervisor", "api", "worker"]
    for role in ("api", "worker"):
        assert wait_until(lambda role=role: "up" in (tmp_path / "logs" / f"{role}.log").read_text(), 10)  # type: ignore[misc]  # bound now
    stop.request()
    supervisor.run()
    assert order.read_text() == "worker api "
    ended = fleet_file.read(tmp_path)
    assert ended is not None
    assert ended.processes == ()


def test_a_second_request_does_not_wait_for_the_drain(tmp_path: Path) -> None:
    stop = StopRequest()
    supervisor = Supervisor(empty_fleet(tmp_path), [], [spec(STUBBORN, stop_seconds=600)], stop)
    supervisor.tick()
    assert wait_until(lambda: "deaf" in (tmp_path / "logs" / "worker.log").read_text(), 10)
    stop.request()
    stop.request()
    began = time.monotonic()
    supervisor.run()
    assert time.monotonic() - began < 10


def test_only_one_supervisor_holds_the_lock_and_its_pid_is_known(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with supervisor_lock(tmp_path):
        assert holder(tmp_path) == ProcessIdentity.of(os.getpid())
        with pytest.raises(StateConflictError, match=str(os.getpid())), supervisor_lock(tmp_path):
            pass
    assert holder(tmp_path) is None


def test_leftovers_end_but_a_recycled_pid_is_spared(tmp_path: Path) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", SLEEP]) as ours,
        subprocess.Popen([sys.executable, "-c", SLEEP]) as theirs,
    ):
        found = ProcessIdentity.of(ours.pid)
        assert found is not None
        entries = (
            fleet_file.FleetProcess("worker", found.pid, found.birth),
            fleet_file.FleetProcess("api", theirs.pid, "boot:born-earlier"),
        )
        fleet_file.write(replace(empty_fleet(tmp_path), processes=entries))
        assert [process.pid for process in end_children(tmp_path)] == [ours.pid]
        assert ours.wait(5) == -signal.SIGTERM
        assert theirs.poll() is None
        theirs.kill()


def parent_of_watched(log: Path) -> str:
    return (
        "import os, subprocess, sys, time\n"
        "os.environ['TOKENMILL_SUPERVISOR_PID'] = str(os.getpid())\n"
        f"child = subprocess.Popen([sys.executable, '-c', {WATCHED!r}], stdout=open({str(log)!r}, 'w'))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )


def test_a_child_ends_within_ten_seconds_of_its_parent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", parent_of_watched(log)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = ProcessIdentity.of(int(parent.stdout.readline()))
        assert child is not None
        assert wait_until(lambda: log.exists() and "watching" in log.read_text(), 20)
        time.sleep(1)
        assert child.alive
        parent.kill()
    assert wait_until(lambda: not child.alive, 10)


@pytest.mark.parametrize(
    ("workers", "threads", "expected"),
    [
        (0, 1, [(0,), (1,), (2,), (3,)]),
        (0, 2, [(0, 1), (2, 3)]),
        (3, 2, [(0, 1), (2, 3), (0, 1)]),
        (1, 9, [(0, 1, 2, 3)]),
    ],
)
def test_core_sets(
    monkeypatch: pytest.MonkeyPatch, workers: int, threads: int, expected: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr("cli.supervisor.core_sets.usable_cores", lambda: [0, 1, 2, 3])
    assert core_sets(Settings.model_validate({"workers": workers, "threads_per_worker": threads})) == expected


def test_hardware_threads_of_one_core_count_once_and_nodes_stay_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    siblings = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}
    for core, text in siblings.items():
        (tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "topology" / "thread_siblings_list").write_text(text + "\n")
        (tmp_path / f"cpu{core}" / f"node{core % 2}").mkdir()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1, 2, 3, 4, 5, 6, 7})
    assert usable_cores(tmp_path) == [2, 4, 1, 3]
    assert written((2, 4)) == "2,4"


def test_the_fleet_file_survives_the_round_trip(tmp_path: Path) -> None:
    process = fleet_file.FleetProcess("worker", 1, "birth", cores=(0, 1), number=0)
    fleet = replace(empty_fleet(tmp_path), processes=(process,), restarts={"worker-0": 2})
    fleet_file.write(fleet)
    assert fleet_file.read(tmp_path) == fleet
    assert json.loads(json.dumps(fleet.status()))["processes"] == []


def test_a_request_interrupts_a_start_but_not_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Callable[..., None]] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    stop = StopRequest()
    stop.install()
    stop.raising = True
    with pytest.raises(KeyboardInterrupt):
        handlers[signal.SIGTERM](signal.SIGTERM, None)
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert stop.urgent


def test_children_get_every_setting_wherever_it_was_set(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"model": "other", "lease": 12.5, "api_key": "tm_x", "encryption_key": "old", "state_dir": tmp_path}
    )
    environment = child_environment(settings, Addresses("postgresql://d", "redis://r", 1, 2), "k:new")
    expected = {
        "MODEL": "other", "LEASE": "12.5", "API_KEY": "tm_x", "ENCRYPTION_KEY": "k:new", "API_PORT": "1",
        "STATE_DIR": str(tmp_path), "DATABASE_URL": "postgresql://d", "SUPERVISOR_PID": str(os.getpid()),
    }  # fmt: skip
    assert {name: environment[f"TOKENMILL_{name}"] for name in expected} == expected
