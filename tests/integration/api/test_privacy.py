import base64
import io
import json
import re

import pytest
import redis
from sqlalchemy import text

from cli.embedded.process import wait_until
from shared.models import Base
from tests.integration.api.caller import Api

pytestmark = pytest.mark.servers

CANARY = "zebra4711canary"
OUTPUT_CANARY = "giraffe0815canary"
ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")


def table_dump(api: Api) -> bytes:
    with api.database.transaction() as session:
        rows = [
            bytes(value) if isinstance(value, memoryview | bytes) else str(value).encode()
            for table in Base.metadata.sorted_tables
            for row in session.execute(table.select())
            for value in row
        ]
    return b"\n".join(rows)


def redis_dump(client: "redis.Redis") -> bytes:
    """Names and values of all keys, message bodies decoded. Only strings, lists, sets and hashes are known here."""
    read = {b"string": client.get, b"list": lambda key: client.lrange(key, 0, -1), b"set": client.smembers}
    entries = [key + repr(read.get(client.type(key), client.hgetall)(key)).encode() for key in client.scan_iter()]  # type: ignore[arg-type]  # redis types sync and async answers alike
    bodies = [base64.b64decode(found) for entry in entries for found in re.findall(rb'"body": "([^"]+)"', entry)]
    return b"\n".join(entries + bodies)


def assert_absent(where: bytes, *canaries: str) -> None:
    for canary in canaries:
        for encoding in ENCODINGS:
            encoded = canary.encode(encoding)
            assert encoded not in where
            assert encoded.hex().encode() not in where


def test_prompt_and_output_stand_nowhere_in_clear(api: Api, redis_client: "redis.Redis", logs: io.StringIO) -> None:
    messages = [{"role": "system", "content": CANARY}, {"role": "user", "content": CANARY}]
    job = api.post("/v1/jobs", {"messages": messages}, headers={"Idempotency-Key": "k-1"}).json()
    assert wait_until(lambda: api.count("outbox") == 0, 10)
    queued = redis_dump(redis_client)
    api.complete(job["id"], OUTPUT_CANARY)
    assert api.get(f"/v1/jobs/{job['id']}").json()["output"] == OUTPUT_CANARY
    assert job["id"].encode() in queued
    assert_absent(queued, CANARY, OUTPUT_CANARY)
    assert job["id"].encode() in table_dump(api)
    assert_absent(table_dump(api), CANARY, OUTPUT_CANARY, api.key.split("_", 2)[2])
    assert job["id"] not in logs.getvalue()
    assert '"path": "/v1/jobs/{job_id}"' in logs.getvalue()
    assert_absent(logs.getvalue().encode(), CANARY, OUTPUT_CANARY, api.key)


REFUSED = [
    {"prompt": CANARY, "sampling": {"temperature": CANARY}},
    {"prompt": CANARY * 100},
    {"prompt": f"{CANARY}\0"},
    {"messages": [{"role": "assistant", "content": CANARY}, {"role": CANARY, "content": CANARY}]},
    {"prompt": CANARY, "deadline": CANARY},
    {"prompt": CANARY, "metadata": {"k": CANARY * 100}},
    {"prompt": [CANARY]},
    {"prompt": {CANARY: CANARY}},
]


@pytest.mark.parametrize("body", REFUSED)
def test_a_refusal_quotes_nothing(api: Api, body: dict[str, object], logs: io.StringIO) -> None:
    answer = api.post("/v1/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert_absent(answer.content + logs.getvalue().encode(), CANARY)


def test_broken_json_is_not_quoted(api: Api, logs: io.StringIO) -> None:
    raw = f'{{"prompt": "{CANARY}", {CANARY}'.encode()
    answer = api.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert_absent(answer.content + logs.getvalue().encode(), CANARY)


def test_a_failing_database_does_not_leak_parameters(api: Api, logs: io.StringIO) -> None:
    with api.database.transaction() as session:
        session.execute(text("ALTER TABLE outbox ADD CONSTRAINT broken CHECK (false) NOT VALID"))
    try:
        answer = api.post("/v1/jobs", {"prompt": CANARY, "metadata": {"k": CANARY}})
    finally:
        with api.database.transaction() as session:
            session.execute(text("ALTER TABLE outbox DROP CONSTRAINT broken"))
    assert answer.status_code == 500
    assert api.count("job") == 0
    assert "IntegrityError" in logs.getvalue()
    assert_absent(answer.content + logs.getvalue().encode(), CANARY)


def test_query_strings_and_strange_paths_are_not_logged(api: Api, logs: io.StringIO) -> None:
    api.get(f"/v1/jobs?status={CANARY}")
    api.get(f"/v1/{CANARY}")
    api.get("/v1/jobs", headers={"X-Request-ID": f"{CANARY}.{CANARY}"})
    api.get("/v1/jobs", headers={"X-Request-ID": "call-13812345678"})
    assert logs.getvalue().count('"event": "request"') == 4
    assert_absent(logs.getvalue().encode(), CANARY, "13812345678")


def test_every_answer_carries_an_identifier_and_guards_the_browser(api: Api) -> None:
    for answer in (api.get("/v1/jobs"), api.client.get("/health"), api.client.get("/v1/jobs"), api.get("/nowhere")):
        assert answer.headers["x-request-id"].startswith("req-")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


@pytest.mark.parametrize(
    "sampling",
    [
        {"stop": [CANARY]},
        {"regex": CANARY},
        {"choice": [CANARY]},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "description": CANARY, "schema": {"const": CANARY}},
            }
        },
    ],
)
def test_texts_in_sampling_stand_nowhere_in_clear(
    api: Api, redis_client: "redis.Redis", logs: io.StringIO, sampling: dict[str, object]
) -> None:
    job = api.post("/v1/jobs", {"prompt": "x", "sampling": sampling}).json()
    assert wait_until(lambda: api.count("outbox") == 0, 10)
    assert job["id"].encode() in redis_dump(redis_client)
    assert_absent(redis_dump(redis_client), CANARY)
    assert_absent(table_dump(api), CANARY)
    assert CANARY not in logs.getvalue()
