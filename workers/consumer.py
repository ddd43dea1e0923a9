"""The Celery worker inside this process: takes messages on a thread of its own, so signals stay with us."""

import threading

import structlog
from celery import Celery
from celery.app.trace import setup_worker_optimizations
from celery.worker import WorkController, state

log = structlog.get_logger(__name__)


class Consumer:
    """Consumes one queue with as many threads as the engine has slots."""

    def __init__(self, app: Celery, *, name: str, queue: str, concurrency: int) -> None:
        """Prepare; nothing connects before `start`. `name` is `name@host`."""
        setup_worker_optimizations(app, name)
        self._queue = queue
        self._controller = WorkController(
            app=app,
            hostname=name,
            pool_cls="threads",
            concurrency=concurrency,
            queues=[queue],
            loglevel="WARNING",
            without_mingle=True,
            without_gossip=True,
        )
        self._thread = threading.Thread(target=self._controller.start, name="consumer", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether messages are being taken, or the broker waited for."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to take messages."""
        self._thread.start()

    def cancel(self) -> None:
        """Take no new messages; those taken may still be acknowledged."""
        hub, consumer = self._controller.hub, self._controller.consumer
        if hub is not None and consumer.task_consumer is not None:
            # The hub's thread owns the connection.
            hub.call_soon(consumer.cancel_task_queue, self._queue)

    def stop(self, timeout: float) -> bool:
        """Disconnect; return whether the thread ended within `timeout` seconds."""
        state.should_stop = 0
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()
