import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.database import Database
from tests.integration.api.caller import Api
from tests.integration.api.conftest import serving, settings_for

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def api(postgres_url: str, redis_url: str, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One for all: what is refused leaves nothing behind."""
    database = Database(postgres_url)
    with serving(settings_for(postgres_url, redis_url, model_dir, tmp_path_factory.mktemp("state")), database) as api:
        yield api
    database.close()


CANARY = "zebra-4711-canary"
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": f"{CANARY}\0"}, "prompt"),
    ({"prompt": f"{CANARY}\ud800"}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": [CANARY]}, "prompt"),
    ({"prompt": CANARY, "messages": [{"role": "user", "content": CANARY}]}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": CANARY}, "messages"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": f"{CANARY}\0"}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": f"{CANARY}\udfff"}]}, "messages.0.content"),
    ({"messages": [{"role": CANARY, "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "user"}]}, "messages.1.content"),
    ({"messages": [{"role": "user", "content": "x", "name": CANARY}]}, "messages.0.name"),
    ({"prompt": CANARY, "temperature": 1}, "temperature"),
    ({"prompt": CANARY, "sampling": {"temprature": 1}}, "sampling.temprature"),
    ({"prompt": CANARY, "sampling": {"temperature": -1}}, "sampling.temperature"),
    ({"prompt": CANARY, "sampling": {"temperature": CANARY}}, "sampling.temperature"),
    ({"prompt": CANARY, "sampling": {"temperature": "1"}}, "sampling.temperature"),
    ({"prompt": CANARY, "sampling": {"max_tokens": True}}, "sampling.max_tokens"),
    ({"prompt": CANARY, "sampling": {"max_tokens": 0}}, "sampling.max_tokens"),
    ({"prompt": CANARY, "sampling": {"max_tokens": 1.5}}, "sampling.max_tokens"),
    ({"prompt": CANARY, "sampling": {"max_tokens": 5, "min_tokens": 6}}, "sampling.min_tokens"),
    ({"prompt": CANARY, "sampling": {"stop": [CANARY, ""]}}, "sampling.stop.1"),
    ({"prompt": CANARY, "sampling": {"seed": 2**63}}, "sampling.seed"),
    ({"prompt": CANARY, "sampling": None}, "sampling"),
    ({"prompt": CANARY, "sampling": {"n": 17}}, "sampling.n"),
    ({"prompt": CANARY, "sampling": {"num_beams": 2, "n": 3}}, "sampling.n"),
    ({"prompt": CANARY, "sampling": {"num_beams": 2, "temperature": 1}}, "sampling.num_beams"),
    ({"prompt": CANARY, "sampling": {"num_beams": 2, "logprobs": True}}, "sampling.num_beams"),
    ({"prompt": CANARY, "sampling": {"length_penalty": 2}}, "sampling.length_penalty"),
    ({"prompt": CANARY, "sampling": {"adapter": f"../{CANARY}"}}, "sampling.adapter"),
    ({"prompt": CANARY, "sampling": {"adapter": CANARY}}, "sampling.adapter"),
    ({"prompt": CANARY, "sampling": {"top_logprobs": 2}}, "sampling.top_logprobs"),
    ({"prompt": CANARY, "sampling": {"logprobs": True, "top_logprobs": 21}}, "sampling.top_logprobs"),
    ({"prompt": CANARY, "sampling": {"logprobs": 1}}, "sampling.logprobs"),
    ({"prompt": CANARY, "sampling": {"logit_bias": {"5": 101}}}, "sampling.logit_bias.5"),
    ({"prompt": CANARY, "sampling": {"logit_bias": {"5": "1"}}}, "sampling.logit_bias.5"),
    ({"prompt": CANARY, "sampling": {"logit_bias": {"-5": 1}}}, "sampling.logit_bias.-5"),
    ({"prompt": CANARY, "sampling": {"logit_bias": {"9" * 5000: 1}}}, "sampling.logit_bias"),
    ({"prompt": CANARY, "sampling": {"logit_bias": {"258": 1}}}, "sampling.logit_bias"),
    ({"prompt": CANARY, "sampling": {"logit_bias": {str(i): 1 for i in range(301)}}}, "sampling.logit_bias"),
    ({"prompt": CANARY, "sampling": {"stop_token_ids": [258]}}, "sampling.stop_token_ids"),
    ({"prompt": CANARY, "sampling": {"stop": f"{CANARY}\0"}}, "sampling.stop"),
    ({"prompt": CANARY, "sampling": {"choice": []}}, "sampling.choice"),
    ({"prompt": CANARY, "sampling": {"choice": [CANARY, ""]}}, "sampling.choice.1"),
    ({"prompt": CANARY, "sampling": {"choice": [f"{CANARY}\ud800"]}}, "sampling.choice.0"),
    ({"prompt": CANARY, "sampling": {"choice": [CANARY], "regex": CANARY}}, "sampling.choice"),
    ({"prompt": CANARY, "sampling": {"choice": [CANARY], "stop": [CANARY]}}, "sampling.choice"),
    ({"prompt": CANARY, "sampling": {"regex": f"{CANARY}("}}, "sampling.regex"),
    ({"prompt": CANARY, "sampling": {"regex": f"(?={CANARY})"}}, "sampling.regex"),
    ({"prompt": CANARY, "sampling": {"regex": "a" * 4097}}, "sampling.regex"),
    ({"prompt": CANARY, "sampling": {"regex": f"{CANARY}\0"}}, "sampling.regex"),
    ({"prompt": CANARY, "sampling": {"response_format": {"type": CANARY}}}, "sampling.response_format.type"),
    (
        {"prompt": CANARY, "sampling": {"response_format": {"type": "json_schema"}}},
        "sampling.response_format.json_schema",
    ),
    ({"prompt": CANARY, "response_format": {"type": "text"}, "sampling": {"regex": "("}}, "sampling.regex"),
    ({"prompt": CANARY, "response_format": {"type": "json_object"}, "sampling": {"stop": "x"}}, "response_format"),
    ({"prompt": CANARY, "priority": CANARY}, "priority"),
    ({"prompt": CANARY, "deadline": CANARY}, "deadline"),
    ({"prompt": CANARY, "deadline": "2099-01-01T00:00:00"}, "deadline"),
    ({"prompt": CANARY, "deadline": "2020-01-01T00:00:00Z"}, "deadline"),
    ({"prompt": CANARY, "deadline": 10**18}, "deadline"),
    ({"prompt": CANARY, "deadline": True}, "deadline"),
    ({"prompt": CANARY, "metadata": {f"k{i}": "" for i in range(17)}}, "metadata"),
    ({"prompt": CANARY, "metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"prompt": CANARY, "metadata": {"k" * 65: "v"}}, f"metadata.{'k' * 64}"),
    ({"prompt": CANARY, "metadata": {"k": 1}}, "metadata.k"),
    ({"prompt": CANARY, "metadata": {"k": "\0"}}, "metadata.k"),
    ({"prompt": CANARY, "metadata": {"a\0b": "v"}}, "metadata.a\N{REPLACEMENT CHARACTER}b"),
    ({"prompt": CANARY, "model": 5}, "model"),
]


@pytest.mark.parametrize(("body", "param"), FIELDS, ids=[f"{i}-{param}" for i, (_, param) in enumerate(FIELDS)])
def test_a_bad_field_is_named_and_not_quoted(api: Api, body: dict[str, Any], param: str) -> None:
    answer = api.post("/v1/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), answer.text
    assert error["type"] == "invalid_request_error"
    assert CANARY not in answer.text
    assert api.get("/v1/jobs").json()["data"] == []


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "title": CANARY}
    for _ in range(depth):
        schema = {"type": "object", "properties": {CANARY: schema}}
    return schema


def branching(name: str) -> dict[str, Any]:
    return {"anyOf": [{"type": "object", "properties": {f"{name}{i}": {"type": "string"}}} for i in range(8)]}


SCHEMAS: dict[str, dict[str, Any]] = {
    "no such type": {"type": CANARY},
    "keyword that cannot be enforced": {"type": "object", "not": {"const": CANARY}},
    "unknown format": {"type": "string", "format": CANARY},
    "refers to itself": {"$ref": "#"},
    "refers to nothing": {"$ref": f"#/$defs/{CANARY}"},
    "refers to another host": {"$ref": f"http://127.0.0.1:1/{CANARY}"},
    "nothing satisfies it": {"type": "string", "minLength": 2, "maxLength": 1, "title": CANARY},
    "bad pattern": {"type": "string", "pattern": f"{CANARY}("},
    "nested too deeply": nested(40),
    "too long": {"enum": [f"{CANARY}{i}" for i in range(5000)]},
    "explodes": {"allOf": [branching(f"{CANARY}{i}") for i in range(6)]},
    "switches of the library": {"type": "object", "x-guidance": {"lenient": True}, CANARY: 1},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_that_cannot_be_enforced_is_refused_and_not_quoted(api: Api, name: str) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS[name]}}
    answer = api.post("/v1/jobs", {"prompt": CANARY, "sampling": {"response_format": wanted}})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].startswith("sampling.response_format")
    assert CANARY not in answer.text
    assert len(answer.text) < 500


@pytest.mark.parametrize(
    "sampling",
    [
        {"regex": "(x+x+)+y"},
        {"regex": "(((a{1,100}){1,100}){1,100}){1,100}"},
        {"regex": "(.*a.{500})b"},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"enum": list(range(9000))}},
            }
        },
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "x",
                    "schema": {
                        "$defs": {
                            "n": {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "required": ["c"]}
                        },
                        "$ref": "#/$defs/n",
                    },
                },
            }
        },
    ],
)
def test_what_blows_up_elsewhere_is_answered_at_once(api: Api, sampling: dict[str, Any]) -> None:
    other = api.key_with("submit")
    begun = time.thread_time()
    assert api.post("/v1/jobs", {"prompt": "x", "sampling": sampling}, key=other).status_code in {202, 400}
    assert time.thread_time() - begun < 5


RAW = [
    (b"", None),
    (b"{", None),
    (b"[]", None),
    (b'"x"', None),
    (b"null", None),
    (b'{"prompt": "x"', None),
    (b'\xef\xbb\xbf{"prompt": "x"}', None),
    (b'{"prompt": "\xff"}', None),
    ('{"prompt": "x"}'.encode("utf-16"), None),
    (b'{"prompt": "x", "sampling": {"temperature": NaN}}', "sampling.temperature"),
    (b'{"prompt": "x", "sampling": {"temperature": Infinity}}', "sampling.temperature"),
    (b'{"prompt": "x", "sampling": {"temperature": 1e999}}', "sampling.temperature"),
    (b'{"prompt": "x", "sampling": {"max_tokens": ' + b"9" * 5000 + b"}}", None),
    (b'{"prompt": "x", "prompt": "y"}', "prompt"),
    (b"[" * 100_000, None),
    (b'{"metadata":' * 150 + b"1" + b"}" * 150, "metadata.metadata"),
    (b'{"prompt": "x", "sampling":' + b'{"response_format":' * 300 + b"1" + b"}" * 301, None),
]


@pytest.mark.parametrize(("raw", "param"), RAW)
def test_what_is_not_strict_json_is_refused(api: Api, raw: bytes, param: str | None) -> None:
    answer = api.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_a_body_beyond_what_is_read_says_so(api: Api) -> None:
    raw = b'{"prompt": "x", "sampling":' + b'{"response_format":' * 300 + b"1" + b"}" * 301
    answer = api.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"})
    assert "nested too deeply" in answer.json()["error"]["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_must_say_that_it_is_json(api: Api, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    answer = api.post("/v1/jobs", content=b'{"prompt": "x"}', headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["param"] == "Content-Type"


def test_json_with_a_charset_is_json(api: Api) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    other = api.key_with("submit")
    assert api.post("/v1/jobs", content=b'{"prompt": "x"}', headers=headers, key=other).status_code == 202


@pytest.mark.parametrize("key", ["", " ", "k" * 256, "a b", "schl\u00fcssel"])
def test_a_bad_idempotency_key_is_named(api: Api, key: str) -> None:
    answer = api.post("/v1/jobs", {"prompt": "x"}, headers={b"Idempotency-Key": key.encode("latin-1")})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Idempotency-Key")


QUERIES = [
    ("/v1/jobs?limit=0", "limit"),
    ("/v1/jobs?limit=101", "limit"),
    ("/v1/jobs?limit=ten", "limit"),
    ("/v1/jobs?status=done", "status"),
    ("/v1/jobs?after=job_%00", "after"),
    ("/v1/jobs/job_00000000000000000000000000000000?wait=61", "wait"),
    ("/v1/jobs/job_00000000000000000000000000000000?wait=-1", "wait"),
    ("/v1/jobs/job_00000000000000000000000000000000?wait=nan", "wait"),
]


@pytest.mark.parametrize(("path", "param"), QUERIES)
def test_a_bad_query_is_named(api: Api, path: str, param: str) -> None:
    answer = api.get(path)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


@pytest.mark.parametrize("job_id", ["job_%00", "job_xyz", "JOB_00000000000000000000000000000000", "%F0%9F%A6%93"])
def test_an_impossible_id_is_not_found(api: Api, job_id: str) -> None:
    assert api.get(f"/v1/jobs/{job_id}").status_code == 404
    assert api.call("DELETE", f"/v1/jobs/{job_id}").status_code == 404
    assert api.post(f"/v1/jobs/{job_id}/cancel").status_code == 404
    assert api.post(f"/v1/jobs/{job_id}/retry").status_code == 404


def test_a_body_over_the_limit_is_refused_by_its_declared_length(api: Api) -> None:
    limit = 4 * 1024 * 1024
    answer = api.post("/v1/jobs", {"prompt": "x" * limit})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert str(limit) in answer.json()["error"]["message"]


def test_a_body_over_the_limit_is_refused_while_it_streams(api: Api) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"x" * 100_000

    headers = {"Content-Type": "application/json"}
    answer = api.post("/v1/jobs", content=chunks(), headers=headers)
    assert answer.status_code == 413


def test_unknown_paths_and_methods_have_the_error_shape(api: Api) -> None:
    assert api.get("/v1/nothing").json()["error"]["code"] == "not_found"
    answer = api.call("PUT", "/v1/jobs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
