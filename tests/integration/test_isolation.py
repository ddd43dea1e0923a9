"""A job whose step failed runs alone the next time: whoever was to blame, its neighbours finish."""

from datetime import timedelta

import pytest

from shared.database import Database
from shared.errors import EncryptionKeyMissingError, GenerationFailedError, WorkerStoppingError
from shared.leases import JobError
from shared.settings import Settings
from shared.states import JobState
from tests.fleet import Jobs, keyring_of
from workers.job_store import JobStore

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("code", "alone"),
    [(GenerationFailedError.code, True), (EncryptionKeyMissingError.code, False), (WorkerStoppingError.code, False)],
)
def test_only_a_failed_step_makes_a_job_run_alone(
    database: Database,
    settings: Settings,
    code: str,
    alone: bool,  # noqa: FBT001  # pytest passes parameters by name
) -> None:
    jobs = Jobs(database, keyring_of(settings))
    (job_id,) = jobs.submit("text")
    store = JobStore(database, "worker-1@here", timedelta(minutes=1))
    claim = store.claim(job_id, alone=False)
    assert claim is not None
    assert store.fail(claim, JobError(code, "invented", retryable=True))
    job = jobs.get(job_id)
    assert (job.state, job.isolate) == (JobState.QUEUED, alone)
    jobs.change(job_id, run_after=job.created_at)
    assert (store.claim(job_id, alone=False) is None) == alone
