"""The consumer on a real broker: Celery giving up must not cost the process its warm model."""

import threading
from collections.abc import Iterator

import pytest
from celery import Celery
from celery.worker import state

from cli.embedded.process import wait_until
from shared.celery_app import create_celery, publish
from shared.outbox import Message, queue_for
from shared.settings import Settings
from workers import tasks
from workers.consumer import Consumer

pytestmark = pytest.mark.servers
MODEL = "m"


class Seen:
    """Job ids in the order their messages arrived."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, job_id: str) -> None:
        self.ids.append(job_id)
        self.gate.wait(10)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def app(settings: Settings, redis_client: object, seen: Seen) -> Iterator[Celery]:  # noqa: ARG001  # an empty broker
    celery = create_celery(settings, model=MODEL)
    tasks.register(celery, seen.run)
    yield celery
    celery.close()


@pytest.fixture
def consumer(app: Celery) -> Iterator[Consumer]:
    subject = Consumer(app, name="worker-test@here", queue=queue_for(MODEL), concurrency=2)
    subject.start()
    yield subject
    assert subject.stop(15)
    state.should_stop = None  # Celery keeps it for the whole process
    state.reset_state()


def send(app: Celery, *job_ids: str) -> None:
    for job_id in job_ids:
        publish(app, Message(job_id, queue_for(MODEL), 3))


def break_down(consumer: Consumer) -> None:
    """Raise in the consumer's event loop what kombu raises when it closes a channel twice."""

    def closed_twice() -> None:
        raise AttributeError("'NoneType' object has no attribute 'client'")

    consumer._controller.hub.call_soon(closed_twice)


def test_a_consumer_that_breaks_down_is_started_again(consumer: Consumer, app: Celery, seen: Seen) -> None:
    send(app, "job_1")
    assert wait_until(lambda: seen.ids == ["job_1"], 15)
    for round_ in range(2, 4):
        broken = consumer._controller
        break_down(consumer)
        assert wait_until(lambda broken=broken: consumer._controller is not broken, 15)
        send(app, f"job_{round_}")
        assert wait_until(lambda round_=round_: f"job_{round_}" in seen.ids, 15)
    assert consumer.alive


def test_it_breaks_down_while_a_job_runs(consumer: Consumer, app: Celery, seen: Seen) -> None:
    seen.gate.clear()
    send(app, "job_1")
    assert wait_until(lambda: seen.ids == ["job_1"], 15)
    break_down(consumer)
    seen.gate.set()
    send(app, "job_2")
    assert wait_until(lambda: "job_2" in seen.ids, 20)


def test_a_consumer_told_to_stop_stays_stopped(consumer: Consumer, app: Celery, seen: Seen) -> None:
    send(app, "job_1")
    assert wait_until(lambda: seen.ids == ["job_1"], 15)
    assert consumer.stop(15)
    assert not consumer.alive
    state.should_stop = None
