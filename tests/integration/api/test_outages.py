import io
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
from sqlalchemy import text

from api import health
from cli.embedded.postgres import PostgresServer
from cli.embedded.process import wait_until
from cli.embedded.valkey import ValkeyServer
from shared import migrate, outbox, workers_repository
from shared.celery_app import create_celery, publish, redis_keys_of
from shared.database import Database
from shared.settings import Settings
from shared.workers_repository import Heartbeat
from tests.integration.api.caller import Api
from tests.integration.api.conftest import Serve
from tests.integration.api.tiny_model import NAME
from tests.servers import discard

pytestmark = pytest.mark.servers

QUEUE = outbox.queue_for(NAME)


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path / "own")
    server.start()
    yield server
    server.stop()


def published(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return sum(int(client.llen(key)) for key in redis_keys_of(QUEUE))


def test_a_submission_is_published_at_once(api: Api, redis_client: "redis.Redis", redis_url: str) -> None:
    job_id = api.submit(priority="high")["id"]
    assert wait_until(lambda: api.count("outbox") == 0, 10)
    assert published(redis_url) == 1
    assert job_id in repr(redis_client.lrange(QUEUE, 0, -1))


def test_without_a_broker_submissions_are_accepted_and_wait_in_the_outbox(serve: Serve) -> None:
    with serve(redis_url=f"redis://127.0.0.1:{closed_port()}/0") as api:
        for _ in range(3):
            begun = time.monotonic()
            api.submit()
            assert time.monotonic() - begun < 2
        time.sleep(0.5)
        assert api.count("outbox") == 3


def test_a_broker_that_hangs_does_not_hold_up_submissions(
    serve: Serve, own_valkey: ValkeyServer, api_settings: dict[str, object]
) -> None:
    process = own_valkey.find()
    assert process is not None
    with serve(redis_url=own_valkey.url) as api:
        api.submit()
        assert wait_until(lambda: api.count("outbox") == 0, 10)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            jobs = [api.submit()["id"] for _ in range(20)]
            assert time.monotonic() - begun < 5
            assert api.get(f"/v1/jobs/{jobs[0]}").json()["status"] == "queued"
            assert api.post(f"/v1/jobs/{jobs[0]}/cancel").json()["status"] == "cancelled"
            assert api.count("outbox") == 20
        finally:
            os.kill(process.pid, signal.SIGCONT)
    # What the fast path left, the relay publishes.
    celery = create_celery(Settings.model_validate({**api_settings, "redis_url": own_valkey.url}))
    with api.database.transaction() as session:
        outbox.relay(session, lambda message: publish(celery, message))
    celery.close()
    assert api.count("outbox") == 0
    assert published(own_valkey.url) >= 21


PATHS = [
    ("GET", "/v1/jobs"),
    ("GET", f"/v1/jobs/job_{'0' * 32}?wait=5"),
    ("POST", "/v1/jobs"),
    ("POST", "/generate"),
    ("POST", f"/v1/jobs/job_{'0' * 32}/cancel"),
    ("POST", f"/v1/jobs/job_{'0' * 32}/retry"),
    ("DELETE", f"/v1/jobs/job_{'0' * 32}"),
]


def _after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def _heartbeat(model: str) -> Heartbeat:
    return Heartbeat("w", "host", 1, [0], model, "v1", "ready", datetime.now(UTC), {})


def assert_unavailable(api: Api, method: str, path: str) -> None:
    answer = api.call(method, path, json={"prompt": "x"} if method == "POST" else None)
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["code"] == "service_unavailable"
    assert answer.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_a_database_everything_that_needs_it_is_unavailable(serve: Serve, method: str, path: str) -> None:
    with serve(database_url=f"postgresql://u:p@127.0.0.1:{closed_port()}/d") as api:
        assert_unavailable(api, method, path)
        assert api.client.get("/health").status_code == 200


def test_a_database_that_goes_away_and_comes_back(serve: Serve, tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "own")
    server.start()
    migrate.upgrade(server.url)
    database = Database(server.url)
    try:
        with serve(database_url=server.url) as elsewhere:
            api = replace(elsewhere, database=database)
            api.key = api.key_with("submit", "read")
            job_id = api.submit()["id"]
            server.stop()
            for method, path in PATHS:
                assert_unavailable(api, method, path)
            server.start()
            assert api.get(f"/v1/jobs/{job_id}").json()["status"] == "queued"
    finally:
        database.close()
        discard(server)


def test_killed_connections_are_replaced_unseen(api: Api) -> None:
    job_id = api.submit()["id"]
    with api.database.transaction() as session:
        session.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tokenmill-api'")
        )
    assert api.get(f"/v1/jobs/{job_id}").status_code == 200


def test_a_long_poll_hears_of_an_outage(serve: Serve, tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "own")
    server.start()
    migrate.upgrade(server.url)
    database = Database(server.url)
    try:
        with serve(database_url=server.url) as elsewhere:
            api = replace(elsewhere, database=database)
            api.key = api.key_with("submit", "read")
            job_id = api.submit()["id"]
            database.close()
            stopper = _after(0.5, server.stop)
            begun = time.monotonic()
            answer = api.get(f"/v1/jobs/{job_id}?wait=60")
            assert answer.status_code == 503
            assert time.monotonic() - begun < 40
            stopper.join()
    finally:
        discard(server)


def test_ready_needs_database_broker_and_a_fresh_worker(api: Api) -> None:
    assert "no worker serves tiny-chat" in api.client.get("/ready").json()["reasons"][0]
    with api.database.transaction() as session:
        workers_repository.beat(session, _heartbeat(NAME))
    answer = api.client.get("/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    with api.database.transaction() as session:
        session.execute(text("UPDATE worker_heartbeat SET seen_at = now() - interval '16 seconds'"))
    assert api.client.get("/ready").status_code == 503
    with api.database.transaction() as session:
        session.execute(text("UPDATE worker_heartbeat SET seen_at = now(), model = 'other'"))
    assert api.client.get("/ready").status_code == 503


def test_ready_names_each_part_that_is_away(serve: Serve) -> None:
    port = closed_port()
    with serve(database_url=f"postgresql://u:p@127.0.0.1:{port}/d", redis_url=f"redis://127.0.0.1:{port}/0") as api:
        answer = api.client.get("/ready")
        assert answer.status_code == 503
        assert {reason.partition(":")[0] for reason in answer.json()["reasons"]} == {"database", "broker", "worker"}
        assert answer.json()["error"]["code"] == "service_unavailable"


def test_ready_answers_although_the_broker_hangs(
    serve: Serve, own_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.5)
    process = own_valkey.find()
    assert process is not None
    with serve(redis_url=own_valkey.url) as api:
        os.kill(process.pid, signal.SIGSTOP)
        try:
            assert "broker: does not answer" in api.client.get("/ready").json()["reasons"]
        finally:
            os.kill(process.pid, signal.SIGCONT)


def test_an_unforeseen_error_says_nothing_of_its_cause(api: Api, logs: io.StringIO) -> None:
    with api.database.transaction() as session:
        session.execute(text("ALTER TABLE job RENAME TO mislaid"))
    try:
        answer = api.get("/v1/jobs")
    finally:
        with api.database.transaction() as session:
            session.execute(text("ALTER TABLE mislaid RENAME TO job"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "mislaid" not in answer.text
    assert answer.headers["x-request-id"] in logs.getvalue()
    assert "ProgrammingError" in logs.getvalue()
