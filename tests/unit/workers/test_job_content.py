"""What a worker makes of a job's policy: what the model reads, what is stored, what is put back."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shared.crypto import KeyRing, Sealed, generate_key
from shared.errors import PrivacyBlockedError
from shared.models import Job
from shared.privacy import Action, Policy, Scrubber
from workers.engine.sequence import GenerationOutput
from workers.job_content import JobContent, Prompt

KEYRING = KeyRing.from_setting(generate_key())


class Letters:
    """A token per character of the last message."""

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return [ord(char) for char in messages[-1]["content"]]


CONTENT = JobContent(KEYRING, Scrubber(), Letters())


def job(text: str, privacy: dict[str, Any] | None = None, job_id: str = "job_1", key: str = "key") -> Job:
    content = {"messages": [{"role": "user", "content": text}]} | ({"privacy": privacy} if privacy else {})
    sealed = KEYRING.seal(json.dumps(content).encode(), context=f"job:{job_id}:prompt")
    return Job(id=job_id, api_key_id=key, sampling={}, prompt_ciphertext=sealed.blob, prompt_key_id=sealed.key_id)


def asked(*, restore: bool = False, **policy: object) -> dict[str, Any]:
    return {"policy": Policy.model_validate(policy).model_dump(mode="json"), "restore": restore}


def read_by_the_model(prompt: Prompt) -> str:
    return "".join(map(chr, prompt.token_ids))


def stored(of: Job, prompt: Prompt, text: str) -> tuple[str, dict[str, Any]]:
    output = GenerationOutput((1,), text, "stop", 1, 0, 1, 0, 0, 0, 0)
    sealed = CONTENT.seal_output(of, prompt, output)
    content = json.loads(KEYRING.open(Sealed(*vars_of(sealed.sealed)), context=f"job:{of.id}:output"))
    return content["text"], sealed.receipt


def vars_of(sealed: Sealed) -> tuple[str, bytes]:
    return sealed.key_id, sealed.blob


def test_values_of_the_prompt_are_put_back_for_the_owner_and_invented_ones_are_not() -> None:
    asking = job("call 13812345678", asked(restore=True))
    prompt = CONTENT.prompt(asking)
    assert read_by_the_model(prompt) == "call <PHONE_1>"
    text, receipt = stored(asking, prompt, "dial <phone_1>, or 13911112222, or <PHONE_10>")
    assert text == "dial 13812345678, or <PHONE_2>, or <PHONE_10>"
    assert receipt["unresolved"] == 2
    assert receipt["entities"] == {"PHONE": 1}
    assert receipt["output_entities"] == {"PHONE": 1}


def test_nothing_is_put_back_unasked() -> None:
    plain = job("call 13812345678")
    text, receipt = stored(plain, CONTENT.prompt(plain), "dial <PHONE_1>")
    assert text == "dial <PHONE_1>"
    assert "unresolved" not in receipt


def test_two_jobs_never_share_a_mapping() -> None:
    first, second = job("call 13812345678", asked(restore=True)), job("no number", asked(restore=True), "job_2")
    CONTENT.prompt(first)
    assert stored(second, CONTENT.prompt(second), "dial <PHONE_1>")[0] == "dial <PHONE_1>"


def test_the_policy_of_the_job_decides() -> None:
    masked = job("call 13812345678 in 杭州市文三路12号", asked(name="clinic", version=3, default=Action.MASK))
    prompt = CONTENT.prompt(masked)
    assert read_by_the_model(prompt) == "call *******5678 in *****路12号"
    assert prompt.receipt["policy"] == "clinic@3"
    assert stored(masked, prompt, "13911112222")[0] == "*******2222"


def test_hashes_are_the_same_in_all_jobs_of_a_key_and_of_no_other() -> None:
    policy = asked(default=Action.HASH)
    texts = [
        read_by_the_model(CONTENT.prompt(job("13812345678", policy, job_id, key)))
        for job_id, key in (("job_1", "key"), ("job_2", "key"), ("job_3", "other"))
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("text", ["call 13812345678", "nothing"])
def test_blocked_data_ends_the_job_before_or_after_generation(text: str) -> None:
    blocking = job(text, asked(actions={"PHONE": Action.BLOCK}))
    with pytest.raises(PrivacyBlockedError):
        stored(blocking, CONTENT.prompt(blocking), "dial 13911112222")
