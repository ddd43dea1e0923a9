"""Canaries: a value of its own in every place a client can write to, then a search through everything the fleet keeps.

Content may be found encrypted only; labels (`metadata`, `Idempotency-Key`) in PostgreSQL only.
"""

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from psycopg.sql import SQL, Identifier

from cli.embedded.process import wait_until
from tests.acceptance.test_main_job import ENDED, datatable, stored
from tests.fake_model import FAULT, POISON
from tests.local_fleet import LocalFleet, new_fleet

pytestmark = [pytest.mark.servers]

LABELS = frozenset({"metadata value", "metadata key", "idempotency key"})
PHONE = "13812345678"


@dataclass
class Canaries:
    """Values by the place they were sent in, and what the API answered to anything but their owner's reading."""

    values: dict[str, str] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)

    def new(self, place: str) -> str:
        self.values[place] = f"canary{secrets.token_hex(8)}"
        return self.values[place]


def spellings(value: str) -> Iterator[bytes]:
    """Yield how a value could be written: as it is, encoded, wide, or as a part of something longer."""
    plain = value.encode()
    yield from (plain, plain.upper(), plain.hex().encode(), value.encode("utf-16-le"), plain[::-1])
    for shift in range(3):  # the alignments of base64, without the characters its neighbours change
        encoded = base64.b64encode(b"\0" * shift + plain)
        yield encoded[4:-4]


def places_in(data: bytes, canaries: Canaries) -> set[str]:
    return {place for place, value in canaries.values.items() if any(form in data for form in spellings(value))}


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    local = new_fleet()
    local.environment |= {
        "TOKENMILL_LOG_LEVEL": "DEBUG",
        "TOKENMILL_LEASE": "4",
        "TOKENMILL_HEARTBEAT": "1",
        "TOKENMILL_REPUBLISH_AFTER": "2",
        "TOKENMILL_MAX_ATTEMPTS": "2",
    }
    try:
        local.up()
        yield local
    finally:
        local.remove()


@pytest.fixture(scope="module")
def http(fleet: LocalFleet) -> Iterator[httpx.Client]:
    status = fleet.status()
    key = Path(status["key_file"]).read_text().strip()
    with httpx.Client(base_url=status["api_url"], headers={"Authorization": f"Bearer {key}"}, timeout=60.0) as client:
        yield client


def accepted(http: httpx.Client, canaries: Canaries) -> list[str]:
    """Submit jobs that are accepted, with canaries wherever one fits; return their ids."""
    new = canaries.new
    fine: list[dict[str, Any]] = [
        {"prompt": new("prompt")},
        {"messages": [{"role": "system", "content": new("system")}, {"role": "user", "content": new("user")}]},
        {"prompt": json.dumps({new("JSON key"): {"deep": [new("JSON value"), PHONE]}})},
        {"prompt": f"{PHONE} {new('beside personal data')}", "privacy": {"restore": True}},
        {"prompt": "a", "sampling": {"stop": [new("stop string")], "max_tokens": 4}},
        {"prompt": "a", "sampling": {"choice": [new("choice"), "b"], "max_tokens": 40}},
        {"prompt": "a", "sampling": {"regex": f"({new('regex')}|b)", "max_tokens": 40}},
        {"prompt": "a", "metadata": {"document": new("metadata value"), new("metadata key"): "x"}},
        {"prompt": "a", "privacy": {"policy": {"default": "redact", "actions": {new("entity").upper(): "block"}}}},
        {"prompt": f"{FAULT}{new('prompt of a failing generation')}"},
        {"prompt": f"{POISON}{new('prompt of a killed worker')}"},
    ]
    headers = {"Idempotency-Key": new("idempotency key"), "X-Request-ID": f"{new('request id with a blank')} x"}
    agents = {"User-Agent": new("user agent"), "Referer": new("referer"), "X-Forwarded-For": new("forwarded for")}
    ids = []
    for body in fine:
        answer = http.post("/v1/jobs", json=body, headers={"User-Agent": agents["User-Agent"]})
        assert answer.status_code == 202, answer.text
        ids.append(answer.json()["id"])
    ids.append(http.post("/v1/jobs", json={"prompt": "a"}, headers=headers | agents).json()["id"])
    return ids


def refused(http: httpx.Client, canaries: Canaries) -> None:
    """Send what is refused; keep the answers, which must not quote."""
    new = canaries.new
    bodies: list[Any] = [
        {"prompt": new("over-long field") * 100_000},
        {"prompt": "a", "sampling": {"temperature": new("wrong type")}},
        {"prompt": "a", "priority": new("priority")},
        {"prompt": "a", "sampling": {"adapter": new("adapter")}},
        {"prompt": "a", "sampling": {"regex": f"{new('bad regex')}("}},
        {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {new("schema"): 1}}}},
        {"prompt": "a", "privacy": {"policy": {"allow": [new("allow list")]}}},
        {"prompt": "a", "model": new("model name")},
    ]
    canaries.answers += [http.post("/v1/jobs", json=body).text for body in bodies]
    raw = [f'{{"prompt": "{new("malformed JSON")}"', f"\xff{new('not UTF-8')}"]
    headers = {"Content-Type": "application/json"}
    canaries.answers += [http.post("/v1/jobs", content=body.encode("latin-1"), headers=headers).text for body in raw]
    for path in (f"/v1/{new('path')}", f"/v1/jobs/{new('job id')}", f"/v1/jobs?after={new('query')}"):
        canaries.answers.append(http.get(path).text)
    wrong = {"Authorization": f"Bearer {new('wrong key')}"}
    canaries.answers.append(http.post("/v1/jobs", json={"prompt": "a"}, headers=wrong).text)
    canaries.answers.append(http.post("/v1/scrub", json={"text": new("scrubbed text"), "x": 1}).text)
    http.post("/v1/scrub", json={"text": f"{new('scrubbed only')} {PHONE}"})


@pytest.fixture(scope="module")
def canaries(fleet: LocalFleet, http: httpx.Client) -> Canaries:
    """Send everything, wait for the end of every job, and for Flower to have written what it knows."""
    sent = Canaries()
    ids = accepted(http, sent)
    refused(http, sent)
    ended = [wait_for_end(http, job_id) for job_id in ids]
    assert {job["status"] for job in ended} >= {"completed", "failed", "dead"}, [job["status"] for job in ended]
    assert fleet.pids("worker")
    return sent


def wait_for_end(http: httpx.Client, job_id: str) -> dict[str, Any]:
    for _ in range(4):
        job: dict[str, Any] = http.get(f"/v1/jobs/{job_id}", params={"wait": 30}).json()
        if job["status"] in ENDED:
            return job
    raise AssertionError(f"the job is still {job['status']}")


def test_the_search_finds_what_is_there() -> None:
    """Otherwise an empty result would prove nothing."""
    planted = Canaries({"a": "canary0123456789abcdef"})
    value = planted.values["a"].encode()
    for data in (
        value,
        base64.b64encode(b"x" + value + b"yz"),
        value.hex().encode(),
        value.decode().encode("utf-16-le"),
    ):
        assert places_in(b"before " + data + b" after", planted) == {"a"}
    assert places_in(b"canary9999", planted) == set()


def test_answers_to_refused_requests_quote_nothing(canaries: Canaries) -> None:
    assert all('"error"' in answer for answer in canaries.answers)
    # The name of a model that is not installed is told: it is no content, and it is what must be corrected.
    assert places_in("\n".join(canaries.answers).encode(), canaries) == {"model name"}


def test_postgresql_holds_labels_in_clear_and_nothing_else(canaries: Canaries, fleet: LocalFleet) -> None:
    with psycopg.connect(fleet.status()["database_url"]) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert len(tables) > 8
        rows = [
            row[0]
            for (table,) in tables
            for row in connection.execute(SQL("SELECT t::text FROM {} t").format(Identifier(table))).fetchall()
        ]
    assert places_in("\n".join(rows).encode(), canaries) == LABELS


def test_no_process_leaves_its_memory_behind(canaries: Canaries, fleet: LocalFleet) -> None:
    assert canaries.values
    for role in ("api", "worker", "maintenance", "flower"):
        for pid in fleet.pids(role):
            limits = Path(f"/proc/{pid}/limits").read_text()
            assert "Max core file size        0                    0" in limits, (role, limits)


def test_redis_holds_none(canaries: Canaries, fleet: LocalFleet) -> None:
    with redis.Redis.from_url(fleet.status()["redis_url"]) as broker:
        assert places_in(stored(broker), canaries) == set()


def test_flower_shows_none(canaries: Canaries, fleet: LocalFleet) -> None:
    user, _, password = (fleet.state_dir / "flower.auth").read_text().strip().partition(":")
    with httpx.Client(base_url=fleet.status()["flower_url"], auth=(user, password)) as flower:
        assert wait_until(lambda: "tokenmill.generate" in flower.get("/tasks/datatable", params=datatable()).text, 20)
        table = flower.get("/tasks/datatable", params=datatable()).json()["data"]
        pages = [flower.get(f"/task/{row['uuid']}").text for row in table[:20]] + [flower.get("/workers").text]
    assert len(table) > 5
    assert places_in((json.dumps(table) + "".join(pages)).encode(), canaries) == set()


def test_no_file_holds_one_but_postgresql_s_labels(canaries: Canaries, fleet: LocalFleet) -> None:
    """Logs with debug messages and tracebacks, the broker's file, Flower's database, PostgreSQL's files."""
    fleet.down()  # what is still in memory is written now
    found: dict[str, set[str]] = {}
    for root in {fleet.state_dir, postgres_home(fleet)}:
        for path in root.rglob("*"):
            if path.is_file():
                places = places_in(path.read_bytes(), canaries)
                if places:
                    found[str(path.relative_to(root))] = places
    outside = {name: places - LABELS for name, places in found.items()}
    assert {name: places for name, places in outside.items() if places} == {}
    assert found, "labels must be found in PostgreSQL's files, else the search looks in the wrong place"
    assert not [name for name in found if "log" in Path(name).suffix], found
    logs = "".join(path.read_text(errors="replace") for path in (fleet.state_dir / "logs").glob("*.log"))
    assert '"level": "debug"' in logs


def postgres_home(fleet: LocalFleet) -> Path:
    from cli.embedded.postgres import PostgresServer  # noqa: PLC0415 — needs the fleet's directory

    return PostgresServer(fleet.state_dir).placement.home
