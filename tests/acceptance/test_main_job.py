"""The main job, end to end: `tokenmill up` with the real default model, driven over HTTP and the command line."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis

from cli.embedded.process import wait_until
from tests.fake_up import REPOSITORY
from tests.local_fleet import LocalFleet, new_fleet

pytestmark = [pytest.mark.servers, pytest.mark.model]
# The float32 model gives the first word of its answer a probability of 0.94: quantisation cannot change it by chance.
QUESTION, ANSWER = "Explain quantum computing in three sentences.", "Quantum computing"
CANARY = "zanzibar-heron-4417"
ENDED = {"completed", "failed", "cancelled", "expired", "dead"}
MIX = [
    ("What is the capital of France?", 24),
    ("List five fruits.", 40),
    ("Why is the sky blue?", 48),
    ("Summarise: " + "The pump failed twice because a seal was worn. The seal was replaced. " * 12, 32),
    ("用中文回答：北京在哪里？", 24),
    ("Write a haiku about the sea.", 40),
    ("Repeat the word mill.", 8),
    ("Explain quantum computing in three sentences.", 48),
] * 2


class Client:
    """The fleet's API with its first key."""

    def __init__(self, fleet: LocalFleet) -> None:
        self.status = fleet.status()
        key = Path(self.status["key_file"]).read_text().strip()
        self.http = httpx.Client(
            base_url=self.status["api_url"], headers={"Authorization": f"Bearer {key}"}, timeout=90.0
        )

    def submit(self, prompt: str, max_tokens: int = 8, **headers: str) -> dict[str, Any]:
        body = {"prompt": prompt, "sampling": {"max_tokens": max_tokens}}
        answer = self.http.post("/v1/jobs", json=body, headers=headers)
        assert answer.status_code in {200, 202}, answer.text
        job: dict[str, Any] = answer.json()
        return job

    def wait(self, job: dict[str, Any], seconds: int = 120) -> dict[str, Any]:
        for _ in range(0, seconds, 30):
            answer: dict[str, Any] = self.http.get(f"/v1/jobs/{job['id']}", params={"wait": 30}).json()
            if answer["status"] in ENDED:
                return answer
        raise AssertionError(f"the job is still {answer['status']}")

    def completed(self, prompt: str, max_tokens: int = 8) -> dict[str, Any]:
        job = self.wait(self.submit(prompt, max_tokens))
        assert job["status"] == "completed", job
        return job


@pytest.fixture(scope="module")
def fleet(model_store: Path) -> Iterator[LocalFleet]:
    local = new_fleet()
    local.environment |= {
        "TOKENMILL_MODEL_DIR": str(model_store),
        "TOKENMILL_MAX_NUM_SEQS": "16",
        "TOKENMILL_MAX_MODEL_LEN": "1536",
        "TOKENMILL_LEASE": "4",
        "TOKENMILL_HEARTBEAT": "1",
        "TOKENMILL_REPUBLISH_AFTER": "2",
    }
    try:
        started = local.command("up", "--detach")
        assert started.returncode == 0, started.stderr + local.logs()
        yield local
    finally:
        local.remove()


@pytest.fixture
def client(fleet: LocalFleet) -> Iterator[Client]:
    subject = Client(fleet)
    with subject.http:
        yield subject


def test_a_job_is_submitted_polled_and_answered_by_the_model(client: Client) -> None:
    job = client.submit(QUESTION, 24)
    assert job["status"] in {"queued", "running"}
    done = client.wait(job)
    assert ANSWER in done["output"]
    assert done["finish_reason"] == "length"
    assert done["usage"]["prompt_tokens"] > done["usage"]["completion_tokens"] > 0
    assert done["model_version"].startswith("smollm2-135m-instruct@int8-")


def test_generate_answers_at_once(client: Client) -> None:
    answer = client.http.post("/generate", json={"prompt": QUESTION, "sampling": {"max_tokens": 24}})
    assert answer.status_code == 200
    assert ANSWER in answer.json()["text"]


def test_the_same_idempotency_key_is_the_same_job(client: Client) -> None:
    first = client.submit("Say hello.", **{"Idempotency-Key": "night-shift-42"})
    second = client.submit("Say hello.", **{"Idempotency-Key": "night-shift-42"})
    assert first["id"] == second["id"]


def test_a_wrong_key_is_refused(client: Client) -> None:
    answer = client.http.get("/v1/jobs", headers={"Authorization": "Bearer tm_0000000000000000_wrong"})
    assert answer.status_code == 401


def test_a_bad_field_is_named(client: Client) -> None:
    answer = client.http.post("/v1/jobs", json={"prompt": "Hi", "sampling": {"temperature": -1}})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "sampling.temperature"


def test_a_prompt_of_1024_tokens_works_and_a_longer_one_than_fits_is_refused(client: Client) -> None:
    done = client.completed("word " * 1000, 4)
    assert done["usage"]["prompt_tokens"] >= 1024
    answer = client.http.post("/v1/jobs", json={"prompt": "word " * 2000, "sampling": {"max_tokens": 4}})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "prompt_too_long"
    assert "1536" in error["message"]
    assert any(2000 < int(word) < 2100 for word in error["message"].replace(",", "").split() if word.isdigit())


def test_personal_data_never_reaches_the_model(client: Client) -> None:
    done = client.completed("Repeat exactly: call 13812345678 or mail anna.lee@example.org", 40)
    assert done["privacy"]["entities"] == {"PHONE": 1, "EMAIL": 1}
    assert "13812345678" not in done["output"]
    assert "anna.lee@example.org" not in done["output"]


def test_greedy_output_is_equal_alone_and_in_a_mixed_batch(client: Client) -> None:
    alone = [client.completed(prompt, limit)["output"] for prompt, limit in MIX[: len(MIX) // 2]] * 2
    jobs = [client.submit(prompt, limit) for prompt, limit in MIX]
    together = [client.wait(job)["output"] for job in jobs]
    assert together == alone


def test_redis_and_flower_hold_job_ids_only(client: Client, fleet: LocalFleet) -> None:
    for worker in fleet.pids("worker"):
        os.kill(worker, signal.SIGSTOP)
    jobs = [client.submit(f"{CANARY} says {number}") for number in range(4)]
    with redis.Redis.from_url(client.status["redis_url"]) as broker:
        assert wait_until(lambda: stored(broker).count(b"tokenmill.generate") >= len(jobs), 10)
        held = stored(broker)
    for worker in fleet.pids("worker"):
        os.kill(worker, signal.SIGCONT)
    assert CANARY.encode() not in held
    assert all(job["id"].encode() in held for job in jobs)
    assert all(client.wait(job)["status"] == "completed" for job in jobs)
    user, _, password = (fleet.state_dir / "flower.auth").read_text().strip().partition(":")
    with httpx.Client(base_url=client.status["flower_url"], auth=(user, password)) as flower:
        shown = flower_tasks(flower, jobs[-1]["id"])
    assert CANARY not in shown
    assert all(job["id"] in shown for job in jobs)
    assert CANARY not in fleet.logs()


def stored(broker: "redis.Redis") -> bytes:
    """Every key of the broker with its whole value."""
    readers = {
        b"list": lambda key: b"".join(broker.lrange(key, 0, -1)),
        b"hash": lambda key: repr(broker.hgetall(key)).encode(),
        b"set": lambda key: repr(broker.smembers(key)).encode(),
        b"zset": lambda key: repr(broker.zrange(key, 0, -1, withscores=True)).encode(),
        b"string": lambda key: broker.get(key) or b"",
    }
    parts = [key + readers[broker.type(key)](key) for key in broker.scan_iter() if broker.type(key) != b"none"]
    return b"\n".join(parts)


def flower_tasks(flower: httpx.Client, awaited: str) -> str:
    def listed() -> str:
        return flower.get("/tasks/datatable", params=datatable()).text

    assert wait_until(lambda: awaited in listed(), 20), "Flower does not show the task"
    return listed()


def datatable() -> dict[str, str]:
    """What Flower's own page asks for."""
    return {
        "draw": "1",
        "start": "0",
        "length": "500",
        "search[value]": "",
        "order[0][column]": "0",
        "order[0][dir]": "asc",
        "columns[0][data]": "name",
    }


def test_a_worker_killed_in_mid_job_costs_nothing(client: Client, fleet: LocalFleet) -> None:
    jobs = [client.submit(f"Write a long story about number {number}.", 160) for number in range(6)]
    assert wait_until(lambda: "running" in states(client, jobs), 30)
    os.kill(fleet.pids("worker")[0], signal.SIGKILL)
    ended = [client.wait(job) for job in jobs]
    assert {job["status"] for job in ended} == {"completed"}
    assert once_each(client, jobs)


def test_a_wiped_broker_loses_none_of_fifty_jobs(client: Client) -> None:
    jobs = [client.submit(f"Count to {number}.", 4) for number in range(50)]
    with redis.Redis.from_url(client.status["redis_url"]) as broker:
        broker.flushall()
    assert {client.wait(job)["status"] for job in jobs} == {"completed"}
    assert once_each(client, jobs)


def states(client: Client, jobs: list[dict[str, Any]]) -> set[str]:
    return {client.http.get(f"/v1/jobs/{job['id']}").json()["status"] for job in jobs}


def once_each(client: Client, jobs: list[dict[str, Any]]) -> bool:
    ids = [job["id"] for job in jobs]
    with psycopg.connect(client.status["database_url"]) as connection:
        results = connection.execute("SELECT job_id FROM result WHERE job_id = ANY(%s)", [ids]).fetchall()
        gaps = connection.execute(
            "SELECT job_id FROM attempt WHERE job_id = ANY(%s) GROUP BY job_id HAVING max(fence) <> count(*)", [ids]
        ).fetchall()
    return sorted(row[0] for row in results) == sorted(ids) and not gaps


def test_the_workers_are_pinned_to_their_cores(client: Client, fleet: LocalFleet) -> None:
    for process in fleet.status()["processes"]:
        if process["role"] == "worker":
            allowed = Path(f"/proc/{process['pid']}/status").read_text().partition("Cpus_allowed_list:\t")[2]
            assert allowed.split("\n")[0] == ",".join(map(str, process["cores"]))
    listed = client.http.get("/v1/workers").json()["data"]
    assert {tuple(worker["cores"]) for worker in listed if worker["status"] == "ready"} == {
        tuple(process["cores"]) for process in fleet.status()["processes"] if process["role"] == "worker"
    }


def test_the_bulk_command_runs_the_twenty_example_documents(fleet: LocalFleet, tmp_path: Path) -> None:
    results = tmp_path / "out.jsonl"
    documents = REPOSITORY / "examples" / "documents"
    ran = fleet.command(
        "run", str(documents), "--instruction", "Summarise.", "--max-tokens", "8", "-o", str(results), "--json"
    )
    assert ran.returncode == 0, ran.stderr
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [record["document"] for record in records] == sorted(path.name for path in documents.iterdir())
    assert len(records) == 20
    assert sum(count for record in records for count in record["privacy"]["entities"].values()) >= 20
