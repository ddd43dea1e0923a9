"""The Celery worker inside this process: takes messages on a thread of its own, so signals stay with us."""

import threading

import structlog
from celery import Celery
from celery.app.trace import setup_worker_optimizations
from celery.worker import WorkController, state

log = structlog.get_logger(__name__)
RESTART_SECONDS = 1.0


class Consumer:
    """Consumes one queue with as many threads as the engine has slots."""

    def __init__(self, app: Celery, *, name: str, queue: str, concurrency: int) -> None:
        """Prepare; nothing connects before `start`. `name` is `name@host`."""
        setup_worker_optimizations(app, name)
        self._app, self._name, self._queue, self._concurrency = app, name, queue, concurrency
        self._controller = self._new_controller()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._consume, name="consumer", daemon=True)

    def _new_controller(self) -> WorkController:
        return WorkController(
            app=self._app,
            hostname=self._name,
            pool_cls="threads",
            concurrency=self._concurrency,
            queues=[self._queue],
            loglevel="WARNING",
            without_mingle=True,
            without_gossip=True,
        )

    def _consume(self) -> None:
        """Consume until told to stop. The model stays warm when Celery gives up.

        It does when the broker dies while messages are being handed back (kombu 5.7 closes a channel twice and raises
        AttributeError, which Celery calls unrecoverable). What it had taken is recovered through leases and the outbox.
        """
        self._controller.start()
        while not self._stopping.wait(RESTART_SECONDS):
            log.error("the consumer ended by itself and is started again")
            state.reset_state()
            self._controller = self._new_controller()
            self._controller.start()

    @property
    def alive(self) -> bool:
        """Whether messages are being taken, or the broker waited for."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to take messages."""
        self._thread.start()

    def cancel(self) -> None:
        """Take no new messages; those taken may still be acknowledged."""
        self._stopping.set()
        hub, consumer = self._controller.hub, self._controller.consumer
        if hub is not None and consumer is not None and consumer.task_consumer is not None:
            # The hub's thread owns the connection.
            hub.call_soon(consumer.cancel_task_queue, self._queue)

    def stop(self, timeout: float) -> bool:
        """Disconnect; return whether the thread ended within `timeout` seconds."""
        self._stopping.set()
        state.should_stop = 0
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()
