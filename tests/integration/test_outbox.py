"""The outbox on real PostgreSQL."""

from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from shared import outbox
from shared.database import Database
from shared.models import Outbox
from shared.outbox import Message
from shared.settings import Settings
from tests.fleet import Jobs, keyring_of

pytestmark = pytest.mark.servers


@pytest.fixture
def jobs(database: Database, settings: Settings) -> Jobs:
    return Jobs(database, keyring_of(settings))


def waiting(jobs: Jobs) -> int:
    with jobs.database.transaction() as session:
        return session.scalar(select(func.count()).select_from(Outbox)) or 0


def test_messages_hold_a_job_id_a_queue_and_a_priority(jobs: Jobs) -> None:
    ids = jobs.submit("one", "two")
    sent: list[Message] = []
    with jobs.database.transaction() as session:
        assert outbox.relay(session, sent.append) == 2
    assert sent == [Message(job_id, "tokenmill.fake", 3) for job_id in ids]
    assert waiting(jobs) == 0
    assert all(jobs.get(job_id).published_at is not None for job_id in ids)


def test_a_publication_that_fails_keeps_every_row(jobs: Jobs) -> None:
    ids = jobs.submit("one", "two", "three")
    sent: list[Message] = []

    def broker_goes_away(message: Message) -> None:
        if sent:
            raise ConnectionError
        sent.append(message)

    def relay() -> None:
        with jobs.database.transaction() as session:
            outbox.relay(session, broker_goes_away)

    with pytest.raises(ConnectionError):
        relay()
    assert waiting(jobs) == 3
    assert all(jobs.get(job_id).published_at is None for job_id in ids)


def test_two_relays_take_different_rows(jobs: Jobs) -> None:
    ids = jobs.submit(*map(str, range(6)))
    first, second = list[Message](), list[Message]()
    with jobs.database.transaction() as one, jobs.database.transaction() as other:
        assert outbox.relay(one, first.append, limit=4) == 4
        assert outbox.relay(other, second.append) == 2
    assert sorted(message.job_id for message in first + second) == sorted(ids)


def test_rows_not_due_stay(jobs: Jobs) -> None:
    jobs.submit("one")
    with jobs.database.transaction() as session:
        session.execute(update(Outbox).values(not_before=func.now() + timedelta(days=1)))
    with jobs.database.transaction() as session:
        assert outbox.relay(session, lambda _: pytest.fail("not due")) == 0


def test_the_fast_path_publishes_only_its_own_jobs(jobs: Jobs) -> None:
    mine, other = jobs.submit("mine", "other")
    sent: list[Message] = []
    with jobs.database.transaction() as session:
        outbox.relay(session, sent.append, job_ids=[mine])
    assert [message.job_id for message in sent] == [mine]
    assert jobs.get(other).published_at is None
