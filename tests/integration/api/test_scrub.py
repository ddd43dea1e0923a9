"""`/v1/scrub`, and the privacy part of a job: stricter than the key's policy, never looser."""

import io
import json
from typing import Any

import pytest
from sqlalchemy import func, select, text

from shared import api_keys
from shared.crypto import Sealed
from shared.models import Job
from shared.privacy import STRICT, Action, Policy
from tests.integration.api.caller import Api

pytestmark = pytest.mark.servers

CANARY = "zebra-4711-canary"
CLINIC = Policy(name="clinic", default=Action.REDACT, names=True)


def key_with_policy(api: Api, policy: Policy) -> str:
    with api.database.transaction() as session:
        return api_keys.create(session, api.keyring, "strict", ["submit", "read"], policy=policy)


def test_a_text_is_scrubbed_and_nothing_is_kept(api: Api, logs: io.StringIO) -> None:
    answer = api.post("/v1/scrub", {"text": f"{CANARY}: call 13812345678"}).json()
    assert answer["text"] == f"{CANARY}: call <PHONE_1>"
    start = len(f"{CANARY}: call ")
    assert answer["entities"] == [{"type": "PHONE", "start": start, "end": start + 11}]
    assert answer["privacy"]["entities"] == {"PHONE": 1}
    with api.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0
        assert session.scalar(text("SELECT count(*) FROM audit_event WHERE details::text LIKE '%canary%'")) == 0
    assert CANARY not in logs.getvalue()


def test_a_conversation_shares_its_placeholders(api: Api) -> None:
    messages = [{"role": "system", "content": "Mail a@example.com"}, {"role": "user", "content": "a@example.com?"}]
    answer = api.post("/v1/scrub", {"messages": messages}).json()
    assert [message["content"] for message in answer["messages"]] == ["Mail <EMAIL_1>", "<EMAIL_1>?"]
    assert answer["entities"] is None


def test_the_policy_of_the_key_holds_and_may_be_tightened(api: Api) -> None:
    key = key_with_policy(api, CLINIC)
    for body in ({}, {"privacy": {}}):
        answer = api.post("/v1/scrub", {"text": "患者张伟，13812345678"} | body, key=key).json()
        assert answer["text"] == "患者<PERSON>，<PHONE>"
        assert answer["privacy"]["policy"] == "clinic@1"
    stricter = {"policy": {"name": "hard", "default": "block", "names": True}}
    blocked = api.post("/v1/scrub", {"text": "13812345678", "privacy": stricter}, key=key)
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (422, "privacy_blocked")


@pytest.mark.parametrize("path", ["/v1/scrub", "/v1/jobs"])
@pytest.mark.parametrize(
    "policy", ["default", "strict", {"default": "redact"}, {"default": "redact", "allow": ["x"], "names": True}]
)
def test_a_looser_policy_is_refused(api: Api, path: str, policy: object) -> None:
    key = key_with_policy(api, CLINIC)
    body = {"text" if path.endswith("scrub") else "prompt": CANARY, "privacy": {"policy": policy}}
    answer = api.post(path, body, key=key)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "privacy.policy"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": "a", "messages": [{"role": "user", "content": "b"}]}, "text"),
        ({"text": CANARY, "privacy": {"restore": True}}, "privacy.restore"),
        ({"text": CANARY, "privacy": {"policy": {"allow_patterns": ["(?=x)"]}}}, "privacy.policy"),
        ({"text": CANARY, "privacy": {"policy": CANARY}}, "privacy.policy"),
        ({"text": CANARY, CANARY: 1}, CANARY),
    ],
)
def test_a_wrong_field_is_named(api: Api, body: dict[str, Any], param: str) -> None:
    answer = api.post("/v1/scrub", body)
    assert answer.status_code == 400
    assert str(answer.json()["error"]["param"]).startswith(param)


def test_a_key_without_the_scope_may_not(api: Api) -> None:
    assert api.post("/v1/scrub", {"text": "a"}, key=api.key_with("read")).status_code == 403


def opened_prompt(api: Api, job_id: str) -> dict[str, Any]:
    with api.database.transaction() as session:
        job = session.get_one(Job, job_id)
        assert job.prompt_ciphertext is not None
        assert job.prompt_key_id is not None
        sealed = Sealed(job.prompt_key_id, job.prompt_ciphertext)
    content: dict[str, Any] = json.loads(api.keyring.open(sealed, context=f"job:{job_id}:prompt"))
    return content


def test_the_policy_travels_sealed_with_the_prompt(api: Api) -> None:
    key = key_with_policy(api, CLINIC.model_copy(update={"allow": (CANARY,)}))
    job = api.post("/v1/jobs", {"prompt": "hello", "privacy": {"restore": True}}, key=key).json()
    kept = opened_prompt(api, job["id"])["privacy"]
    assert (kept["policy"]["allow"], kept["restore"]) == ([CANARY], True)
    with api.database.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM job WHERE job::text LIKE '%canary%'")) == 0


def test_a_plain_job_carries_no_policy(api: Api) -> None:
    job = api.post("/v1/jobs", {"prompt": "hello", "privacy": {"policy": "default"}}).json()
    assert "privacy" not in opened_prompt(api, job["id"])


def test_a_changed_policy_counts_its_version_up_and_holds_within_seconds(api: Api) -> None:
    key_id = api.key.split("_")[1]
    with api.database.transaction() as session:
        assert api_keys.change_policy(session, key_id, CLINIC).label == "clinic@1"
        assert api_keys.change_policy(session, key_id, CLINIC.model_copy(update={"names": False})).label == "clinic@2"
        assert api_keys.change_policy(session, key_id, STRICT).label == "strict@1"
    with api.database.transaction() as session:
        events = session.scalars(
            text("SELECT details->>'policy' FROM audit_event WHERE event='api_key.policy_changed' ORDER BY id")
        )
        assert list(events) == ["clinic@1", "clinic@2", "strict@1"]
