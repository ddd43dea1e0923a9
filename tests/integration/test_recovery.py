"""What maintenance mends, on real PostgreSQL and Valkey. Time passes by backdating rows."""

import threading
from datetime import timedelta
from functools import partial

import pytest
import redis
from sqlalchemy import func, select

from shared import leases, recovery
from shared.celery_app import create_celery, publish, redis_keys_of
from shared.database import Database
from shared.models import FailureMetric, Job, Outbox
from shared.settings import Settings
from shared.states import JobState
from tests.fleet import Jobs, keyring_of
from workers.maintenance.reaper import Reaper
from workers.maintenance.relay import Relay
from workers.maintenance.republisher import Republisher

pytestmark = pytest.mark.servers

BACKDATED = func.now() - timedelta(seconds=1)
LONG_AGO = func.now() - timedelta(minutes=1)
OLD = timedelta(seconds=10)
QUEUE = "tokenmill.fake"


@pytest.fixture
def jobs(database: Database, settings: Settings) -> Jobs:
    return Jobs(database, keyring_of(settings))


@pytest.fixture
def relay(database: Database, settings: Settings) -> Relay:
    return Relay(database, partial(publish, create_celery(settings)))


@pytest.fixture
def republisher(database: Database, redis_client: "redis.Redis") -> Republisher:
    return Republisher(database, redis_client, OLD)


def messages(client: "redis.Redis") -> int:
    return sum(client.llen(key) for key in redis_keys_of(QUEUE))


def abandoned(jobs: Jobs, **options: object) -> str:
    (job_id,) = jobs.submit("text", **options)  # type: ignore[arg-type]
    with jobs.database.transaction() as session:
        assert leases.claim(session, job_id, "worker-a", timedelta(seconds=30))
    jobs.change(job_id, lease_until=BACKDATED)
    return job_id


def outbox_rows(jobs: Jobs, job_id: str) -> int:
    with jobs.database.transaction() as session:
        return session.scalar(select(func.count()).select_from(Outbox).where(Outbox.job_id == job_id)) or 0


def test_a_lost_workers_job_waits_again_and_will_run_alone(jobs: Jobs, database: Database) -> None:
    job_id = abandoned(jobs)
    Reaper(database).run()
    job = jobs.get(job_id)
    assert (job.state, job.attempt, job.isolate, job.lease_until) == (JobState.QUEUED, 1, True, None)
    assert outbox_rows(jobs, job_id) == 2  # the submission's and the reaper's
    assert [attempt.outcome for attempt in jobs.attempts(job_id)] == ["queued"]
    with database.transaction() as session:
        assert session.scalars(select(FailureMetric.code)).all() == ["worker_lost"]


def test_the_last_attempt_lost_ends_in_the_dead_letters(jobs: Jobs, database: Database) -> None:
    job_id = abandoned(jobs, max_attempts=1)
    Reaper(database).run()
    job = jobs.get(job_id)
    assert (job.state, job.error_code) == (JobState.DEAD, "attempts_exhausted")


def test_an_abandoned_job_to_be_cancelled_is_cancelled(jobs: Jobs, database: Database) -> None:
    job_id = abandoned(jobs)
    jobs.change(job_id, cancel_requested_at=func.now())
    Reaper(database).run()
    assert jobs.get(job_id).state == JobState.CANCELLED


def test_a_live_lease_is_left_alone(jobs: Jobs, database: Database) -> None:
    job_id = abandoned(jobs)
    jobs.change(job_id, lease_until=func.now() + timedelta(seconds=5))
    Reaper(database).run()
    assert jobs.get(job_id).state == JobState.RUNNING


def test_two_reapers_have_one_effect(jobs: Jobs, database: Database) -> None:
    ids = [abandoned(jobs) for _ in range(10)]
    threads = [threading.Thread(target=Reaper(database).run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert jobs.states(ids) == {JobState.QUEUED}
    assert {outbox_rows(jobs, job_id) for job_id in ids} == {2}


def test_a_reaper_that_does_not_get_the_lock_passes(jobs: Jobs, database: Database) -> None:
    job_id = abandoned(jobs)
    with database.transaction() as session:
        assert recovery.try_lock(session)
        assert not Reaper(database).run()
    assert jobs.get(job_id).state == JobState.RUNNING


def test_a_deadline_that_passes_in_the_queue_expires_the_job(jobs: Jobs, database: Database) -> None:
    late, in_time = jobs.submit("late", "in time")
    jobs.change(late, deadline=BACKDATED)
    jobs.change(in_time, deadline=func.now() + timedelta(hours=1))
    Reaper(database).run()
    assert jobs.get(late).state == JobState.EXPIRED
    assert jobs.get(late).error_code == "deadline_exceeded"
    assert jobs.get(in_time).state == JobState.QUEUED


def test_after_a_wipe_every_message_comes_back_once(
    jobs: Jobs, relay: Relay, republisher: Republisher, redis_client: "redis.Redis"
) -> None:
    ids = jobs.submit(*map(str, range(50)), published_at=LONG_AGO)
    relay.run()
    for job_id in ids:
        jobs.change(job_id, published_at=LONG_AGO)
    redis_client.flushall()
    for _ in range(3):
        republisher.run()
        relay.run()
    assert messages(redis_client) == 50


def test_while_the_broker_holds_the_messages_nothing_is_published_anew(
    jobs: Jobs, relay: Relay, republisher: Republisher, redis_client: "redis.Redis"
) -> None:
    ids = jobs.submit(*map(str, range(5)))
    relay.run()
    for job_id in ids:
        jobs.change(job_id, published_at=LONG_AGO)
    republisher.run()
    relay.run()
    assert messages(redis_client) == 5


def test_messages_in_the_hands_of_a_dead_worker_hide_no_lost_ones(
    jobs: Jobs, relay: Relay, republisher: Republisher, redis_client: "redis.Redis"
) -> None:
    (job_id,) = jobs.submit("taken by a worker that died before its claim")
    relay.run()
    (message,) = redis_client.lrange(redis_keys_of(QUEUE)[1], 0, -1)
    redis_client.delete(*redis_keys_of(QUEUE))
    redis_client.hset("unacked", "tag", message)
    jobs.change(job_id, published_at=LONG_AGO)
    republisher.run()
    relay.run()
    assert messages(redis_client) == 1


def test_what_still_stands_in_the_outbox_is_not_written_again(jobs: Jobs, republisher: Republisher) -> None:
    (job_id,) = jobs.submit("not relayed yet", run_after=LONG_AGO)
    republisher.run()
    assert outbox_rows(jobs, job_id) == 1


def test_a_fresh_publication_is_given_time_to_arrive(
    jobs: Jobs, relay: Relay, republisher: Republisher, redis_client: "redis.Redis"
) -> None:
    (job_id,) = jobs.submit("on its way")
    relay.run()
    redis_client.flushall()
    republisher.run()
    assert outbox_rows(jobs, job_id) == 0


def test_waking_writes_a_message_for_a_queued_job_only(jobs: Jobs, relay: Relay, database: Database) -> None:
    waiting, running = jobs.submit("waiting", "running")
    relay.run()
    with database.transaction() as session:
        assert leases.claim(session, running, "worker-a", timedelta(seconds=30))
        recovery.wake(session, waiting)
        recovery.wake(session, running)
    assert (outbox_rows(jobs, waiting), outbox_rows(jobs, running)) == (1, 0)


def test_the_running_job_keeps_its_fence_through_everything(jobs: Jobs, database: Database) -> None:
    job_id = abandoned(jobs)
    for fence in (2, 3):
        Reaper(database).run()
        with database.transaction() as session:
            job = leases.claim(session, job_id, f"worker-{fence}", timedelta(seconds=30))
        assert isinstance(job, Job)
        assert job.fence == fence
        jobs.change(job_id, lease_until=BACKDATED)
    Reaper(database).run()
    assert jobs.get(job_id).state == JobState.DEAD
    assert [attempt.fence for attempt in jobs.attempts(job_id)] == [1, 2, 3]
