"""Claims on real PostgreSQL. Leases end by backdating rows; nothing waits."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from shared import leases
from shared.database import Database
from shared.leases import FinishedOutput, JobError, Renewal
from shared.models import AuditEvent, FailureMetric, Job, Outbox, Result
from shared.settings import Settings
from shared.states import JobState
from tests.fleet import Jobs, keyring_of

pytestmark = pytest.mark.servers

LEASE = timedelta(seconds=30)
BACKDATED = func.now() - timedelta(seconds=1)
STEP_FAILED = JobError("generation_failed", "a step failed", retryable=True)
OUTPUT = FinishedOutput(b"sealed", "k1", "stop", 3, 0, 5, 1.0, 2.0, 3.0, "fake@1", {"entities": {"PHONE": 1}})


@pytest.fixture
def jobs(database: Database, settings: Settings) -> Jobs:
    return Jobs(database, keyring_of(settings))


def claim(jobs: Jobs, job_id: str, worker: str = "worker-a", *, alone: bool = True) -> Job | None:
    with jobs.database.transaction() as session:
        return leases.claim(session, job_id, worker, LEASE, alone=alone)


def claimed(jobs: Jobs, **columns: object) -> Job:
    (job_id,) = jobs.submit("text", **columns)  # type: ignore[arg-type]
    job = claim(jobs, job_id)
    assert job is not None
    return job


def complete(jobs: Jobs, job: Job) -> bool:
    with jobs.database.transaction() as session:
        return leases.complete(session, job.id, job.fence, OUTPUT)


def test_a_claim_leases_the_job_and_counts(jobs: Jobs) -> None:
    job = claimed(jobs)
    assert (job.state, job.attempt, job.fence, job.worker_id) == (JobState.RUNNING, 1, 1, "worker-a")
    assert job.lease_until is not None
    assert [(a.fence, a.worker_id, a.outcome) for a in jobs.attempts(job.id)] == [(1, "worker-a", None)]


def test_a_second_delivery_claims_nothing(jobs: Jobs) -> None:
    job = claimed(jobs)
    assert claim(jobs, job.id, "worker-b") is None
    assert complete(jobs, job)
    assert claim(jobs, job.id, "worker-b") is None


def test_of_many_claims_at_once_one_wins(jobs: Jobs) -> None:
    (job_id,) = jobs.submit("text")
    barrier, won = threading.Barrier(8), list[Job]()

    def race(number: int) -> None:
        barrier.wait(10)
        job = claim(jobs, job_id, f"worker-{number}")
        if job is not None:
            won.append(job)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(won) == 1
    assert jobs.get(job_id).attempt == 1


def test_an_expired_lease_may_be_claimed_and_the_first_holder_can_change_nothing(jobs: Jobs) -> None:
    first = claimed(jobs)
    jobs.change(first.id, lease_until=BACKDATED)
    second = claim(jobs, first.id, "worker-b")
    assert second is not None
    assert (second.fence, second.attempt, second.isolate) == (2, 2, True)
    assert not complete(jobs, first)
    with jobs.database.transaction() as session:
        assert not leases.close(session, first.id, first.fence, JobState.FAILED, STEP_FAILED)
        assert not leases.give_back(session, first.id, first.fence, timedelta(0), STEP_FAILED, free=False)
        assert leases.outcome_of(session, first.id, first.fence) is None
    assert complete(jobs, second)
    with jobs.database.transaction() as session:
        assert session.get_one(Result, first.id).fence == 2
    assert [attempt.outcome for attempt in jobs.attempts(first.id)] == ["lost", "completed"]


def test_the_last_attempt_is_not_claimed_over(jobs: Jobs) -> None:
    job = claimed(jobs, max_attempts=1)
    jobs.change(job.id, lease_until=BACKDATED)
    assert claim(jobs, job.id) is None


@pytest.mark.parametrize(
    "columns",
    [
        {"run_after": func.now() + timedelta(minutes=1)},
        {"deadline": func.now() - timedelta(seconds=1)},
        {"cancel_requested_at": func.now()},
    ],
    ids=["not due", "late", "cancelled"],
)
def test_what_may_not_run_is_not_claimed(jobs: Jobs, columns: dict[str, object]) -> None:
    (job_id,) = jobs.submit("text", **columns)  # type: ignore[arg-type]
    assert claim(jobs, job_id) is None


def test_a_suspect_is_only_claimed_by_a_worker_that_is_alone(jobs: Jobs) -> None:
    (job_id,) = jobs.submit("text", isolate=True)
    assert claim(jobs, job_id, alone=False) is None
    with jobs.database.transaction() as session:
        assert leases.is_suspect(session, job_id)
    assert claim(jobs, job_id) is not None
    with jobs.database.transaction() as session:
        assert not leases.is_suspect(session, job_id)


def test_renewal_extends_what_is_held_and_names_what_is_lost_or_cancelled(jobs: Jobs) -> None:
    kept, lost, cancelled = claimed(jobs), claimed(jobs), claimed(jobs)
    jobs.change(kept.id, lease_until=BACKDATED)
    jobs.change(lost.id, fence=2)
    jobs.change(cancelled.id, cancel_requested_at=func.now())
    with jobs.database.transaction() as session:
        held = {job.id: job.fence for job in (kept, lost, cancelled)} | {"job_unknown": 1}
        renewal = leases.renew(session, held, LEASE)
    assert renewal == Renewal(frozenset({lost.id, "job_unknown"}), frozenset({cancelled.id}))
    with jobs.database.transaction() as session:
        ahead = session.scalars(select(Job.id).where(Job.lease_until > func.now() + LEASE - timedelta(seconds=5)))
        assert kept.id in set(ahead)


def test_a_result_and_its_state_stand_or_fall_together(jobs: Jobs) -> None:
    job = claimed(jobs)

    def die_before_commit() -> None:
        with jobs.database.transaction() as session:
            assert leases.complete(session, job.id, job.fence, OUTPUT)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die_before_commit()
    assert jobs.get(job.id).state == JobState.RUNNING
    assert complete(jobs, job)
    assert not complete(jobs, job)
    with jobs.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(Result)) == 1
        assert leases.outcome_of(session, job.id, job.fence) == JobState.COMPLETED
        audited = session.scalars(select(AuditEvent).where(AuditEvent.event == "job.completed")).one()
    assert audited.details["entities"] == {"PHONE": 1}


def test_giving_back_waits_publishes_later_and_leaves_a_failure_metric(jobs: Jobs) -> None:
    job = claimed(jobs)
    with jobs.database.transaction() as session:
        assert leases.give_back(session, job.id, job.fence, timedelta(minutes=1), STEP_FAILED, free=False)
    after = jobs.get(job.id)
    assert (after.state, after.attempt, after.lease_until) == (JobState.QUEUED, 1, None)
    with jobs.database.transaction() as session:
        delayed = session.scalars(select(Outbox).where(Outbox.not_before > func.now())).all()
        assert [row.job_id for row in delayed] == [job.id]
        assert session.scalars(select(FailureMetric.code)).all() == ["generation_failed"]
    assert claim(jobs, job.id) is None


def test_giving_back_free_returns_the_attempt_but_never_the_fence(jobs: Jobs) -> None:
    job = claimed(jobs)
    with jobs.database.transaction() as session:
        assert leases.give_back(session, job.id, job.fence, timedelta(0), STEP_FAILED, free=True)
    again = claim(jobs, job.id)
    assert again is not None
    assert (again.attempt, again.fence) == (1, 2)


def test_a_job_to_be_cancelled_is_cancelled_instead_of_given_back(jobs: Jobs) -> None:
    job = claimed(jobs)
    jobs.change(job.id, cancel_requested_at=func.now())
    with jobs.database.transaction() as session:
        assert leases.give_back(session, job.id, job.fence, timedelta(0), STEP_FAILED, free=False)
    assert jobs.get(job.id).state == JobState.CANCELLED
