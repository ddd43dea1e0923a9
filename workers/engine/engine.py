"""Continuous batching across all jobs of a worker: one thread that schedules, runs and hands out results."""

import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import structlog

from shared.errors import CancelledError, InvalidInputError, TokenmillError, WorkerStoppingError
from workers.engine.detokenizer import Decode
from workers.engine.engine_core import EngineCore
from workers.engine.engine_stats import EngineStats
from workers.engine.model_runner import ModelRunner
from workers.engine.output_processor import Finished, step_failed
from workers.engine.request_check import check_request
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sequence import GenerationOutput, GenerationRequest, Sequence

log = structlog.get_logger(__name__)

EngineConfig = SchedulerConfig
GenerationFuture = Future[GenerationOutput]


def _stopping() -> WorkerStoppingError:
    return WorkerStoppingError("the worker is stopping; the job goes back to the queue")


class Engine:
    """Serves generations from one runner. `submit`, `cancel`, `abort` and `stats` may be called from any thread."""

    def __init__(self, runner: ModelRunner, decode: Decode, config: EngineConfig | None = None) -> None:
        """Take ownership of `runner`; `decode` turns token ids into text.

        Raises:
            ConfigurationError: the configuration does not fit the runner.
        """
        self.config = config or EngineConfig(max_num_seqs=runner.max_num_seqs)
        self.runner = runner
        self._core = EngineCore(runner, decode, self.config)
        self._changed = threading.Condition()
        # All below are guarded by `_changed`; the inbox keeps arrivals and removals in the order they were asked for.
        self._inbox: deque[tuple[bool, Sequence]] = deque()
        self._live: dict[str, tuple[Sequence, GenerationFuture]] = {}
        self._draining = False
        self._closing = False
        self._trimming = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start, or close on the way out if that fails."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; what is unfinished gets `WorkerStoppingError`."""
        self.close()

    def start(self) -> None:
        """Warm the runner up and start the engine thread.

        Raises:
            ModelUnsupportedError: the model does not run.
        """
        if self._thread is None:
            self.runner.warm_up()
            self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
            self._thread.start()

    def submit(self, request: GenerationRequest) -> GenerationFuture:
        """Queue a generation. Cancel it with `cancel`, not through the future.

        The future fails with `CancelledError`, `DeadlineExceededError`, `WorkerStoppingError` (retryable) or
        `GenerationFailedError` (retryable).

        Raises:
            InvalidInputError: the prompt is empty, has ids out of range, or the id is in use.
            PromptTooLongError: prompt and `max_tokens` do not fit.
            WorkerStoppingError: the engine is draining.
        """
        check_request(request, vocab_size=self.runner.vocab_size, max_model_len=self.runner.max_model_len)
        sequence, future = self._core.sequence(request, time.monotonic()), GenerationFuture()
        future.set_running_or_notify_cancel()
        with self._changed:
            if self._draining:
                raise _stopping()
            if request.id in self._live:
                raise InvalidInputError(f"a generation with the id {request.id} is running already", field="id")
            self._live[request.id] = (sequence, future)
            self._inbox.append((True, sequence))
            self._changed.notify_all()
        return future

    def cancel(self, request_id: str) -> bool:
        """End a generation with `CancelledError`; return whether it was still unfinished."""
        return self.abort(request_id, CancelledError("the job was cancelled"))

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End a generation with `error` at once; its row is free from the next step on."""
        with self._changed:
            if request_id not in self._live:
                return False
            sequence, future = self._live.pop(request_id)
            self._inbox.append((False, sequence))
            self._changed.notify_all()
        future.set_exception(error)
        return True

    def drain(self, timeout: float) -> bool:
        """Stop admission: waiting sequences are handed back, running ones get `timeout` seconds, then go back too.

        Handed back means `WorkerStoppingError`. Returns whether all running sequences finished.
        """
        with self._changed:
            self._draining = True
            unadmitted = [id_ for id_, (sequence, _) in self._live.items() if not sequence.admitted_at]
        self._hand_back(unadmitted)
        with self._changed:
            finished = self._changed.wait_for(lambda: not self._live, timeout)
            remaining = list(self._live)
        self._hand_back(remaining)
        return finished

    def close(self) -> None:
        """Hand back what is unfinished, stop the thread and free the model. May be called more than once."""
        self.drain(0)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._core.close()

    def trim(self) -> None:
        """Have the engine thread give up the KV kept for reuse, soon."""
        with self._changed:
            self._trimming = True
            self._changed.notify_all()

    def stats(self) -> EngineStats:
        """Return a snapshot of the counters; warm-up is not in them."""
        return self._core.stats()

    def step(self) -> None:
        """Schedule, run, hand out. The engine thread calls this; without `start`, the caller may."""
        self._take_inbox()
        for finished in self._core.step(time.monotonic()):
            self._resolve(finished)

    def _take_inbox(self) -> None:
        with self._changed:
            messages = list(self._inbox)
            self._inbox.clear()
            trimming, self._trimming = self._trimming, False
        if trimming:
            self._core.forget_prefixes()
        for arrives, sequence in messages:
            if arrives:
                self._core.add(sequence)
        self._core.leave(sequence for arrives, sequence in messages if not arrives)

    def _resolve(self, finished: Iterable[Finished]) -> None:
        for item in finished:
            future = self._take_future(item.sequence)
            if future is None:  # aborted during the step
                continue
            if isinstance(item.outcome, GenerationOutput):
                future.set_result(item.outcome)
            else:
                future.set_exception(item.outcome)

    def _take_future(self, sequence: Sequence) -> GenerationFuture | None:
        with self._changed:
            owner, future = self._live.get(sequence.request.id, (None, None))
            if owner is not sequence:
                return None
            del self._live[sequence.request.id]
            self._changed.notify_all()
        return future

    def _hand_back(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.abort(request_id, _stopping())

    def _loop(self) -> None:
        while self._wait_for_work():
            try:
                self.step()
            except Exception as error:  # noqa: BLE001  # the thread outlives every fault; nobody waits for ever
                self._fail_admitted(error)

    def _fail_admitted(self, error: Exception) -> None:
        self._resolve(Finished(sequence, step_failed(error)) for sequence in self._core.leave_admitted())

    def _wait_for_work(self) -> bool:
        with self._changed:
            timeout = self._core.wait_time(time.monotonic())
            self._changed.wait_for(lambda: self._closing or self._inbox or self._trimming, timeout)
            return not self._closing
