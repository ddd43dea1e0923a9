"""How long content stays: raw prompts until scrubbed, the rest until its retention ends, keys until rotated."""

import json
from typing import Any

import pytest
from sqlalchemy import select, text, update

from api import keys as keys_command
from shared import api_keys, leases, reencryption, retention
from shared.crypto import KeyRing, Sealed, generate_key
from shared.database import Database
from shared.errors import AuthenticationError, DecryptionError
from shared.models import ApiKey, Job, Result
from shared.settings import Settings
from shared.states import JobState
from tests.command_line import environment_of
from tests.fleet import API_KEY_ID, Jobs, keyring_of
from tests.integration.test_worker import LEASE, Bench, bench  # noqa: F401 — a fixture
from workers.job_store import JobStore

pytestmark = pytest.mark.servers


def prompt_of(jobs: Jobs, job_id: str, keyring: KeyRing | None = None) -> dict[str, Any]:
    job = jobs.get(job_id)
    assert job.prompt_ciphertext is not None
    assert job.prompt_key_id is not None
    sealed = Sealed(job.prompt_key_id, job.prompt_ciphertext)
    content: dict[str, Any] = json.loads((keyring or jobs.keyring).open(sealed, context=f"job:{job_id}:prompt"))
    return content


def test_the_raw_prompt_goes_once_it_is_scrubbed(bench: Bench) -> None:  # noqa: F811 — the fixture
    (job_id,) = bench.jobs.submit("Call 13812345678 today.")
    bench.runner().run(job_id)
    kept = prompt_of(bench.jobs, job_id)
    assert kept["messages"][0]["content"] == "Call <PHONE_1> today."
    assert "13812345678" not in json.dumps(kept)


def test_a_retry_reads_what_the_first_attempt_scrubbed(bench: Bench) -> None:  # noqa: F811 — the fixture
    (job_id,) = bench.jobs.submit("Call 13812345678 today.")
    claim = bench.store.claim(job_id, alone=False)
    assert claim is not None
    content = bench.runner()._content
    first = content.prompt(claim.job)
    assert first.scrubbed is not None
    bench.store.replace_prompt(claim, first.scrubbed)
    again = content.prompt(bench.jobs.get(job_id))
    assert (again.token_ids, again.receipt, again.scrubbed) == (first.token_ids, first.receipt, None)
    assert again.mapping == {}


def test_only_the_newest_fence_may_replace_the_prompt(bench: Bench) -> None:  # noqa: F811 — the fixture
    (job_id,) = bench.jobs.submit("Call 13812345678 today.")
    claim = bench.store.claim(job_id, alone=False)
    assert claim is not None
    with bench.jobs.database.transaction() as session:
        assert not leases.replace_prompt(session, job_id, claim.job.fence - 1, Sealed("x", b"x"))
    assert prompt_of(bench.jobs, job_id)["messages"][0]["content"] == "Call 13812345678 today."


def ended(jobs: Jobs, days_ago: int, **key: int | None) -> str:
    (job_id,) = jobs.submit("hello")
    store = JobStore(jobs.database, "worker", LEASE)
    claim = store.claim(job_id, alone=False)
    assert claim is not None
    sealed = jobs.keyring.seal(b'{"text": "x"}', context=f"job:{job_id}:output")
    output = leases.FinishedOutput(sealed.blob, sealed.key_id, "stop", 1, 0, 1, 0, 0, 0, "m@1", {"entities": {}})
    assert store.complete(claim, output)
    with jobs.database.transaction() as session:
        ago = text(f"now() - interval '{days_ago} days'")
        session.execute(update(Job).where(Job.id == job_id).values(finished_at=ago))
        if key:
            session.execute(update(ApiKey).where(ApiKey.id == API_KEY_ID).values(**key))
    return job_id


@pytest.fixture
def jobs(database: Database, settings: Settings) -> Jobs:
    return Jobs(database, keyring_of(settings))


@pytest.mark.parametrize(
    ("of_key", "default", "days_ago", "erased"),
    [(None, None, 400, 0), (None, 30, 31, 1), (None, 30, 29, 0), (7, 30, 8, 1), (60, 30, 31, 0), (7, None, 8, 1)],
)
def test_content_is_erased_after_its_retention(
    jobs: Jobs, of_key: int | None, default: int | None, days_ago: int, erased: int
) -> None:
    job_id = ended(jobs, days_ago, retention_days=of_key)
    with jobs.database.transaction() as session:
        assert retention.erase_old_content(session, default) == erased
    with jobs.database.transaction() as session:
        assert retention.erase_old_content(session, default) == 0
        assert (session.get_one(Result, job_id).output_ciphertext is None) == bool(erased)
        events = text("SELECT count(*) FROM audit_event WHERE event = 'job.content_erased'")
        assert session.scalar(events) == erased
    assert (jobs.get(job_id).prompt_ciphertext is None) == bool(erased)
    assert jobs.get(job_id).state == JobState.COMPLETED


def rotated(keyring_setting: str) -> tuple[str, KeyRing]:
    setting = f"{generate_key()},{keyring_setting}"
    return setting, KeyRing.from_setting(setting)


def test_rotation_seals_all_content_anew_and_says_what_can_go(
    jobs: Jobs, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert settings.encryption_key is not None
    old = settings.encryption_key.get_secret_value()
    ids = [ended(jobs, 0), *jobs.submit("two", "three")]
    with jobs.database.transaction() as session:
        key = api_keys.create(session, jobs.keyring, "clinic", ["submit"])
    setting, ring = rotated(old)
    with environment_of(settings, monkeypatch, TOKENMILL_ENCRYPTION_KEY=setting):
        code = keys_command.main(["rotate-encryption"])
    said, complaint = capsys.readouterr()
    assert (code, complaint) == (0, "")
    assert "4 sealed anew" in said
    assert "still needed for 2 api_keys" in said
    assert setting not in said
    with jobs.database.transaction() as session:
        api_keys.authenticate(session, ring, key)
    only_new = KeyRing.from_setting(setting.split(",")[0])
    assert prompt_of(jobs, ids[1], only_new)["messages"][0]["content"] == "two"
    with jobs.database.transaction() as session:
        assert api_keys.authenticate(session, only_new, key).name == "clinic"
        with pytest.raises((AuthenticationError, DecryptionError)):
            api_keys.authenticate(session, jobs.keyring, key)


def test_a_rotation_stopped_at_any_point_goes_on(
    jobs: Jobs, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.encryption_key is not None
    monkeypatch.setattr(reencryption, "BATCH", 2)
    ids = jobs.submit(*[f"prompt {number}" for number in range(5)])
    _, ring = rotated(settings.encryption_key.get_secret_value())
    with jobs.database.transaction() as session:
        assert reencryption.reencrypt_prompts(session, ring) == 2
    assert [prompt_of(jobs, job_id, ring)["messages"][0]["content"] for job_id in ids] == [
        f"prompt {number}" for number in range(5)
    ]
    done = 0
    while True:
        with jobs.database.transaction() as session:
            count = reencryption.reencrypt_prompts(session, ring)
        if not count:
            break
        done += count
    assert done == 3
    with jobs.database.transaction() as session:
        assert set(session.scalars(select(Job.prompt_key_id))) == {ring.active_key_id}
