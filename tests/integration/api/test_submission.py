import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, text

from shared.crypto import Sealed
from shared.models import Job
from shared.sampling import SamplingParams
from tests.integration.api.caller import Api
from tests.integration.api.conftest import Serve
from tests.integration.api.tiny_model import CONTEXT, TOKENS_AROUND_A_PROMPT

pytestmark = pytest.mark.servers


def stored(api: Api, job_id: str) -> Job:
    with api.database.transaction() as session:
        return session.scalars(select(Job).where(Job.id == job_id)).one()


def test_a_submission_is_queued_and_described(api: Api) -> None:
    deadline = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)
    body = {
        "prompt": "Say hello.",
        "sampling": {"max_tokens": 7, "top_k": 5},
        "priority": "high",
        "deadline": deadline.isoformat(),
        "metadata": {"document": "42"},
    }
    answer = api.post("/v1/jobs", body, headers={"X-Request-ID": "trace-0042"})
    job = answer.json()
    assert answer.status_code == 202
    assert answer.headers["x-request-id"] == "trace-0042"
    assert (job["object"], job["status"], job["status_url"]) == ("job", "queued", f"/v1/jobs/{job['id']}")
    assert (job["priority"], job["metadata"], job["attempts"]) == ("high", {"document": "42"}, 0)
    assert job["deadline"] == "2099-01-02T03:04:05Z"
    row = stored(api, job["id"])
    assert row.sampling["max_tokens"] == 7
    assert row.sampling["top_k"] == 5
    assert row.correlation_id == "trace-0042"
    assert api.count("audit_event WHERE event = 'job.submitted'") == 1


def test_the_prompt_is_sealed_as_messages(api: Api) -> None:
    row = stored(api, api.submit("Say hello.")["id"])
    assert row.prompt_ciphertext is not None
    assert row.prompt_key_id is not None
    opened = api.keyring.open(Sealed(row.prompt_key_id, row.prompt_ciphertext), context=f"job:{row.id}:prompt")
    assert opened == b'{"messages": [{"role": "user", "content": "Say hello."}]}'
    assert row.prompt_characters == len("Say hello.")


SEALED: list[dict[str, Any]] = [
    {"stop": ["END", "\n"], "stop_token_ids": [5], "logit_bias": {"7": -1.5}},
    {"regex": "[a-z]+"},
    {"choice": ["yes", "no"]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}},
]


@pytest.mark.parametrize("sampling", SEALED)
def test_what_is_text_in_sampling_is_sealed_with_the_prompt(api: Api, sampling: dict[str, Any]) -> None:
    row = stored(api, api.submit(sampling={**sampling, "temperature": 0.5})["id"])
    assert not set(sampling) & set(row.sampling)
    assert row.prompt_ciphertext is not None
    assert row.prompt_key_id is not None
    opened = api.keyring.open(Sealed(row.prompt_key_id, row.prompt_ciphertext), context=f"job:{row.id}:prompt")
    sealed = json.loads(opened)["sampling"]
    whole = SamplingParams.model_validate(row.sampling | sealed)
    assert whole == SamplingParams.model_validate({**sampling, "temperature": 0.5, "max_tokens": whole.max_tokens})


def test_a_response_format_beside_sampling_is_one_in_sampling(api: Api) -> None:
    wanted = {"type": "json_object"}
    row = stored(api, api.submit(response_format=wanted, sampling={"seed": 3})["id"])
    assert row.sampling["seed"] == 3
    assert row.prompt_ciphertext is not None
    assert row.prompt_key_id is not None
    opened = api.keyring.open(Sealed(row.prompt_key_id, row.prompt_ciphertext), context=f"job:{row.id}:prompt")
    assert json.loads(opened)["sampling"]["response_format"]["type"] == "json_object"


def test_unix_seconds_are_a_deadline_too(api: Api) -> None:
    assert api.submit(deadline=4_102_444_800)["deadline"] == "2100-01-01T00:00:00Z"


def test_a_default_max_tokens_shrinks_to_what_fits_and_a_wanted_one_does_not(api: Api) -> None:
    prompt = "x" * (CONTEXT - TOKENS_AROUND_A_PROMPT - 5)
    assert stored(api, api.submit(prompt)["id"]).sampling["max_tokens"] == 5
    answer = api.post("/v1/jobs", {"prompt": prompt, "sampling": {"max_tokens": 6}})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "prompt_too_long"
    assert answer.json()["error"]["param"] == "prompt"
    assert f"{CONTEXT - 5} prompt tokens and max_tokens 6" in answer.json()["error"]["message"]
    assert f"holds {CONTEXT}" in answer.json()["error"]["message"]


def test_the_setting_caps_the_context(serve: Serve) -> None:
    with serve(max_model_len=64) as api:
        answer = api.post("/v1/jobs", {"prompt": "x" * 64})
        assert answer.json()["error"]["code"] == "prompt_too_long"
        assert "holds 64" in answer.json()["error"]["message"]


def test_an_unknown_model_is_named_with_those_installed(api: Api) -> None:
    answer = api.post("/v1/jobs", {"prompt": "x", "model": "absent"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert answer.json()["error"]["param"] == "model"
    assert "tiny-chat" in answer.json()["error"]["message"]
    assert api.post("/v1/jobs", {"prompt": "x", "model": "../tiny-chat"}).status_code == 404


def test_special_tokens_in_a_prompt_are_plain_text(api: Api) -> None:
    row = stored(api, api.submit("<|im_end|>" * 20)["id"])
    assert row.sampling["max_tokens"] == CONTEXT - TOKENS_AROUND_A_PROMPT - 200


def test_a_replay_gives_the_first_job(api: Api) -> None:
    body = {"prompt": "once", "metadata": {"a": "1", "b": "2"}}
    first = api.post("/v1/jobs", body, headers={"Idempotency-Key": "k-1"})
    same = {"metadata": {"b": "2", "a": "1"}, "sampling": {"max_tokens": 256}, "prompt": "once"}
    again = api.post("/v1/jobs", same, headers={"Idempotency-Key": "k-1"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    assert first.json()["id"] == again.json()["id"]
    assert api.count("job") == 1


def test_a_replay_shows_the_output_only_to_those_who_may_read(api: Api) -> None:
    headers = {"Idempotency-Key": "k-1"}
    job = api.post("/v1/jobs", {"prompt": "once"}, headers=headers).json()
    api.complete(job["id"], "Done.")
    assert api.post("/v1/jobs", {"prompt": "once"}, headers=headers).json()["output"] == "Done."
    submit_only = api.key_with("submit")
    mine = api.post("/v1/jobs", {"prompt": "once"}, headers=headers, key=submit_only).json()
    api.complete(mine["id"], "Done.")
    replay = api.post("/v1/jobs", {"prompt": "once"}, headers=headers, key=submit_only)
    assert replay.headers["idempotent-replay"] == "true"
    assert (replay.json()["status"], replay.json()["output"]) == ("completed", None)


def test_a_replay_is_one_after_its_deadline_its_model_and_its_queue_are_gone(serve: Serve) -> None:
    with serve(queue_limit=1) as api:
        headers = {"Idempotency-Key": "k-1"}
        body = {"prompt": "once", "deadline": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
        job = api.post("/v1/jobs", body, headers=headers).json()
        late = body | {"deadline": "2020-01-01T00:00:00Z"}
        with api.database.transaction() as session:
            session.execute(text("UPDATE job SET deadline = '2020-01-01T00:00:00Z'"))
        assert api.post("/v1/jobs", late, headers=headers).status_code == 409
        assert api.post("/v1/jobs", body, headers=headers).json()["id"] == job["id"]


def test_the_same_key_with_another_body_is_a_lasting_conflict(api: Api) -> None:
    api.post("/v1/jobs", {"prompt": "once"}, headers={"Idempotency-Key": "k-1"})
    answer = api.post("/v1/jobs", {"prompt": "twice"}, headers={"Idempotency-Key": "k-1"})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "idempotency_conflict"
    assert answer.json()["error"]["param"] == "Idempotency-Key"
    assert answer.headers["x-should-retry"] == "false"


def test_a_digest_made_before_a_key_rotation_still_tells_a_replay(serve: Serve, api_settings: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": "k-1"}
    old = api_settings["encryption_key"]
    with serve() as api:
        job = api.post("/v1/jobs", {"prompt": "once"}, headers=headers).json()
        key = api.key
    with serve(encryption_key=f"new:{'A' * 43}=,{old}") as api:
        replay = api.post("/v1/jobs", {"prompt": "once"}, headers=headers, key=key)
        assert (replay.status_code, replay.json()["id"]) == (200, job["id"])
        assert api.post("/v1/jobs", {"prompt": "twice"}, headers=headers, key=key).status_code == 409


def test_two_keys_do_not_share_idempotency_keys(api: Api) -> None:
    headers = {"Idempotency-Key": "k-1"}
    other = api.key_with("submit")
    first = api.post("/v1/jobs", {"prompt": "mine"}, headers=headers)
    second = api.post("/v1/jobs", {"prompt": "theirs"}, headers=headers, key=other)
    assert (first.status_code, second.status_code) == (202, 202)


def test_eight_at_once_make_one_job(api: Api) -> None:
    together = threading.Barrier(8)

    def submit(_: int) -> tuple[int, str]:
        together.wait()
        answer = api.post("/v1/jobs", {"prompt": "once"}, headers={"Idempotency-Key": "k-1"})
        return answer.status_code, answer.json()["id"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submit, range(8)))
    assert sorted(status for status, _ in answers) == [200] * 7 + [202]
    assert len({job_id for _, job_id in answers}) == 1
    assert api.count("job") == 1
    assert api.count("audit_event WHERE event = 'job.submitted'") == 1


def test_a_full_queue_refuses_and_says_when_to_come_back(serve: Serve) -> None:
    with serve(queue_limit=2) as api:
        api.submit()
        api.submit()
        answer = api.post("/v1/jobs", {"prompt": "x"})
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "queue_full"
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert int(answer.headers["retry-after"]) >= 1
        assert api.count("job") == 2
