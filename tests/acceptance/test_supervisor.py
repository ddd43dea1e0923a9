import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
import redis

from cli.embedded.process import ProcessIdentity, arguments_of, wait_until
from tests.local_fleet import READY_SECONDS, LocalFleet, new_fleet

pytestmark = pytest.mark.servers
ROLES = ["api", "flower", "maintenance", "postgres", "redis", "supervisor", "worker", "worker"]


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    local = new_fleet()
    try:
        local.up()
        yield local
    finally:
        local.remove()


@pytest.fixture
def own_fleet() -> Iterator[LocalFleet]:
    local = new_fleet()
    yield local
    local.remove()


def test_status_names_every_process_and_complete_urls(fleet: LocalFleet) -> None:
    status = fleet.status()
    assert sorted(process["role"] for process in status["processes"]) == ROLES
    assert all(Path(f"/proc/{process['pid']}").exists() for process in status["processes"])
    cores = [process["cores"] for process in status["processes"] if process["role"] == "worker"]
    assert {core for cores_of_one in cores for core in cores_of_one} <= os.sched_getaffinity(0)
    assert Path(status["state_dir"]) == fleet.state_dir
    with psycopg.connect(status["database_url"]) as connection:
        assert connection.execute("SELECT count(*) FROM api_key").fetchone() == (1,)
    with redis.Redis.from_url(status["redis_url"]) as client:
        assert client.ping()


def test_the_key_file_opens_the_api_and_is_not_shown(fleet: LocalFleet) -> None:
    status = fleet.status()
    lines = Path(status["key_file"]).read_text().splitlines()
    assert len(lines) == 1
    answer = httpx.get(f"{status['api_url']}/v1/jobs", headers={"Authorization": f"Bearer {lines[0]}"})
    assert answer.status_code == 200
    assert lines[0] not in fleet.logs()


def test_the_command_line_finds_api_and_key_by_itself(fleet: LocalFleet) -> None:
    listed = fleet.command("jobs", "list", "--json")
    assert json.loads(listed.stdout)["data"] == []
    missing = fleet.command("jobs", "show", "job_" + "0" * 32)
    assert (missing.returncode, missing.stdout) == (5, "")
    assert "job" in missing.stderr


def test_flower_wants_its_login_and_cannot_change_anything(fleet: LocalFleet) -> None:
    url = fleet.status()["flower_url"]
    user, _, password = (fleet.state_dir / "flower.auth").read_text().strip().partition(":")
    assert httpx.get(url).status_code == 401
    with httpx.Client(base_url=url, auth=(user, password)) as client:
        assert wait_until(lambda: client.get("/tasks").status_code == 200, 10)
        assert client.post("/api/worker/shutdown/any").status_code in {403, 405}


def test_the_state_directory_is_private(fleet: LocalFleet) -> None:
    assert stat.S_IMODE(fleet.state_dir.stat().st_mode) == 0o700
    for name in ("encryption.key", "api.key", "flower.auth", "fleet.json", "supervisor.lock", "logs/api.log"):
        assert stat.S_IMODE((fleet.state_dir / name).stat().st_mode) == 0o600, name


def test_no_secret_is_in_a_process_list(fleet: LocalFleet) -> None:
    status = fleet.status()
    secrets = [(fleet.state_dir / name).read_text().strip() for name in ("encryption.key", "api.key", "flower.auth")]
    secrets += [status["database_url"], status["redis_url"]]
    secrets += [(fleet.state_dir / role / "password").read_text().strip() for role in ("postgres", "redis")]
    for path in Path("/proc").glob("[0-9]*"):
        line = " ".join(arguments_of(int(path.name)))
        assert not [secret for secret in secrets if secret in line], line.split(" ")[0]


def test_a_second_supervisor_is_refused(fleet: LocalFleet) -> None:
    refused = fleet.command("up")
    assert refused.returncode == 1
    assert "tokenmill down" in refused.stderr
    assert str(fleet.pids("supervisor")[0]) in refused.stderr


def test_a_fleet_that_is_up_is_shown_to_who_wants_one_up(fleet: LocalFleet) -> None:
    before = fleet.identities()
    again = fleet.command("up", "--detach")
    assert again.returncode == 0, again.stderr
    assert fleet.status()["api_url"] in again.stdout
    assert fleet.identities() == before
    assert fleet.command("up", "--detach", "--workers", "1").returncode == 1


@pytest.mark.parametrize("role", ["worker", "maintenance", "api", "redis", "postgres"])
def test_what_crashes_is_started_again(fleet: LocalFleet, role: str) -> None:
    before = fleet.pids(role)
    os.kill(before[0], signal.SIGKILL)
    assert wait_until(lambda: before[0] not in (after := fleet.pids(role)) and len(after) == len(before), 30)
    assert wait_until(fleet.ready, READY_SECONDS), fleet.logs()
    assert len(fleet.pids(role)) == len(before)


def test_status_works_while_the_servers_are_down(fleet: LocalFleet) -> None:
    stopped = [*fleet.pids("postgres"), *fleet.pids("redis")]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert sorted(process["role"] for process in fleet.status()["processes"]) == ROLES
        assert time.monotonic() - began < 10
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def test_doctor_looks_at_the_running_services(fleet: LocalFleet) -> None:
    report = fleet.command("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(report.stdout)["findings"]}
    assert found["redis maxmemory-policy"]["detail"] == "noeviction"
    assert found["postgres"]["detail"].startswith("version ")
    assert found["ports"]["verdict"] == "ok"


def test_a_killed_supervisor_leaves_no_orphans_and_the_next_one_adopts_the_servers(own_fleet: LocalFleet) -> None:
    own_fleet.up()
    status = own_fleet.status()
    children = [p for p in status["processes"] if p["role"] in {"api", "worker", "maintenance", "flower"}]
    identities = [found for p in children if (found := ProcessIdentity.of(p["pid"])) is not None]
    assert len(identities) == len(children)
    assert own_fleet.supervisor is not None
    own_fleet.supervisor.kill()
    own_fleet.supervisor.wait()
    assert wait_until(lambda: not any(identity.alive for identity in identities), 10), own_fleet.logs()
    assert own_fleet.command("status").returncode == 3

    key = (own_fleet.state_dir / "api.key").read_text()
    own_fleet.up()
    again = own_fleet.status()
    servers = [
        {p["role"]: p["pid"] for p in s["processes"] if p["role"] in {"redis", "postgres"}} for s in (status, again)
    ]
    assert servers[0] == servers[1]
    assert {name: status[name] for name in ("api_url", "database_url")} == {
        name: again[name] for name in ("api_url", "database_url")
    }
    assert (own_fleet.state_dir / "api.key").read_text() == key


def test_down_without_a_supervisor_stops_what_is_left(own_fleet: LocalFleet) -> None:
    own_fleet.up()
    identities = own_fleet.identities()
    assert own_fleet.supervisor is not None
    own_fleet.supervisor.kill()
    own_fleet.supervisor.wait()
    own_fleet.down()
    assert not [identity for identity in identities if identity.alive]
    assert "Nothing runs" in own_fleet.command("down").stdout


def test_sigterm_drains_and_leaves_nothing(own_fleet: LocalFleet) -> None:
    own_fleet.up()
    identities = own_fleet.identities()
    assert own_fleet.supervisor is not None
    own_fleet.supervisor.terminate()
    assert own_fleet.supervisor.wait(60) == 0
    assert not [identity for identity in identities if identity.alive]
    log = (own_fleet.state_dir / "logs" / "worker-0.log").read_text()
    assert "worker stopped" in log


def test_a_start_that_fails_says_why_and_leaves_nothing(own_fleet: LocalFleet) -> None:
    own_fleet.environment["TOKENMILL_MODEL"] = "missing"
    failed = own_fleet.command("up", "--detach")
    assert failed.returncode == 1
    assert "'missing' is not installed" in failed.stderr
    assert "Nothing runs" in own_fleet.command("down").stdout


def test_commands_without_a_fleet_say_what_to_do(own_fleet: LocalFleet) -> None:
    own_fleet.state_dir.mkdir()
    for command in (("jobs", "list"), ("status",), ("workers",)):
        failed = own_fleet.command(*command)
        assert failed.returncode == 3
        assert "tokenmill up" in failed.stderr


@pytest.mark.model
def test_up_detach_serves_the_default_model_and_shows_the_key_once(own_fleet: LocalFleet, model_store: Path) -> None:
    own_fleet.environment["TOKENMILL_MODEL_DIR"] = str(model_store)
    started = own_fleet.command("up", "--detach", "--workers", "1")
    assert started.returncode == 0, started.stderr + own_fleet.logs()
    key = (own_fleet.state_dir / "api.key").read_text().strip()
    assert key in started.stdout
    assert key not in own_fleet.logs()
    url = own_fleet.status()["api_url"]
    body = {"prompt": "Explain quantum computing in three sentences.", "sampling": {"max_tokens": 16}}
    job = httpx.post(f"{url}/v1/jobs", json=body, headers={"Authorization": f"Bearer {key}"}).json()
    shown = json.loads(own_fleet.command("jobs", "show", job["id"], "--wait", "25", "--json").stdout)
    assert (shown["status"], "Quantum computing" in shown["output"]) == ("completed", True)
    own_fleet.down()
    again = own_fleet.command("up", "--detach", "--workers", "1")
    assert again.returncode == 0, again.stderr
    assert key not in again.stdout
