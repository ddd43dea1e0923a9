import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared import api_keys
from shared.crypto import KeyRing
from shared.database import Database

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[3]


class Process:
    """`python -m api` on a port of its own choosing."""

    def __init__(self, settings: dict[str, Any], log: Path, **more: str) -> None:
        named = {f"TOKENMILL_{name.upper()}": str(value) for name, value in settings.items()}
        self.log = log
        with log.open("wb") as stream:
            environment = {**os.environ, **named, "TOKENMILL_API_PORT": "0", **more}
            self.child = subprocess.Popen([sys.executable, "-m", "api"], cwd=ROOT, env=environment, stderr=stream)
        self.port = self._port()
        self.url = f"http://127.0.0.1:{self.port}"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def _port(self) -> int:
        for _ in range(600):
            listening = [line for line in self.lines() if line["event"] == "api_listening"]
            if listening:
                return int(listening[0]["port"])
            assert self.child.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def stop(self) -> int:
        if self.child.poll() is None:
            self.child.terminate()
        return self.child.wait(20)


@pytest.fixture
def process(api_settings: dict[str, Any], tmp_path: Path) -> Iterator[Process]:
    running = Process(api_settings, tmp_path / "api.log")
    yield running
    running.stop()


@pytest.fixture
def key(api_settings: dict[str, Any], database: Database) -> str:
    with database.transaction() as session:
        keyring = KeyRing.from_setting(api_settings["encryption_key"])
        return api_keys.create(session, keyring, "test", ["submit", "read"])


def test_it_serves_and_a_long_poll_does_not_delay_its_end(process: Process, key: str) -> None:
    with httpx.Client(base_url=process.url, headers={"Authorization": f"Bearer {key}"}) as client:
        answer = client.post("/v1/jobs", json={"prompt": "Say hello."})
        assert answer.status_code == 202
        assert "server" not in answer.headers
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(client.get, f"{answer.json()['status_url']}?wait=60", timeout=30)
            time.sleep(0.5)
            begun = time.monotonic()
            process.child.send_signal(signal.SIGTERM)
            assert poll.result(15).json()["status"] == "queued"
        process.child.wait(20)
        assert time.monotonic() - begun < 10
    assert process.child.returncode in {0, -signal.SIGTERM}
    assert {line["role"] for line in process.lines()} == {"api"}


def test_forwarded_addresses_are_trusted_from_nobody(process: Process, key: str, database: Database) -> None:
    headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "203.0.113.9"}
    httpx.post(f"{process.url}/v1/jobs", json={"prompt": "x"}, headers=headers)
    with database.transaction() as session:
        row = session.connection().exec_driver_sql("SELECT caller_address FROM audit_event WHERE job_id IS NOT NULL")
        assert row.scalar_one() == "127.0.0.1"


def test_an_endless_body_is_cut_off(process: Process, key: str) -> None:
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(head.encode())
        sent = 0
        try:
            while sent < 64 * 1024 * 1024:
                connection.sendall(chunk)
                sent += 0x10000
        except OSError:
            pass
    assert 4 * 1024 * 1024 <= sent < 64 * 1024 * 1024
    assert any(line.get("status_code") == 413 for line in process.lines())


def test_it_ends_with_its_supervisor(api_settings: dict[str, Any], tmp_path: Path) -> None:
    process = Process(api_settings, tmp_path / "api.log", TOKENMILL_SUPERVISOR_PID="1")
    assert process.child.wait(20) is not None


@pytest.mark.parametrize("missing", ["database_url", "redis_url", "encryption_key"])
def test_it_names_the_setting_it_lacks(api_settings: dict[str, Any], missing: str) -> None:
    named = {f"TOKENMILL_{name.upper()}": str(value) for name, value in api_settings.items() if name != missing}
    done = subprocess.run(
        [sys.executable, "-m", "api"],
        cwd=ROOT,
        env={**os.environ, **named},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert f"TOKENMILL_{missing.upper()}" in done.stderr.decode()
