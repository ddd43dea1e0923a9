"""Beam search as an engine: a queue, and one thread that grows one search at a time."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

import psutil

from shared.errors import DeadlineExceededError, InvalidInputError, TokenmillError
from workers.engine.beam_search import BeamSearch
from workers.engine.detokenizer import Decode
from workers.engine.engine_stats import EngineStats
from workers.engine.genai_process import GenaiProcess
from workers.engine.output_processor import step_failed
from workers.engine.request_check import check_request
from workers.engine.sequence import GenerationOutput, GenerationRequest, Sequence
from workers.engine.serving import stopping


@dataclass(eq=False, slots=True)
class _Job:
    sequence: Sequence
    future: Future[GenerationOutput]
    gone: bool = False


class BeamEngine:
    """Serves requests with `num_beams` above 1. All methods may be called from any thread."""

    def __init__(
        self, process: GenaiProcess, decode: Decode, max_model_len: int, interrupt: Callable[[], None]
    ) -> None:
        """Take the child's process; `interrupt` may end a call that nobody waits for any more."""
        self._process, self._decode, self._interrupt = process, decode, interrupt
        self._max_model_len = min(max_model_len, process.info.context_length)
        self._stats = EngineStats(max_num_seqs=1)
        self._arrivals = itertools.count()
        self._changed = threading.Condition()
        # All below are guarded by `_changed`.
        self._queue: list[tuple[tuple[int, float], int, _Job]] = []
        self._live: dict[str, _Job] = {}
        self._current: _Job | None = None
        self._draining = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def submit(self, request: GenerationRequest) -> Future[GenerationOutput]:
        """Queue a search; the future fails as those of `Engine.submit` do.

        Raises:
            InvalidInputError: the prompt, the id or a parameter cannot be served, or never fits the memory.
            WorkerStoppingError: the engine is draining.
        """
        check_request(request, vocab_size=self._process.info.vocab_size, max_model_len=self._max_model_len)
        self._check(request)
        job = _Job(Sequence(request, time.monotonic()), Future())
        job.future.set_running_or_notify_cancel()
        with self._changed:
            if self._draining:
                raise stopping()
            if request.id in self._live:
                raise InvalidInputError(f"a generation with the id {request.id} is running already", field="id")
            self._live[request.id] = job
            heapq.heappush(self._queue, (job.sequence.urgency, next(self._arrivals), job))
            self._start_thread()
            self._changed.notify_all()
        return job.future

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End a search with `error` at once; return whether it was still unfinished."""
        with self._changed:
            job = self._live.pop(request_id, None)
            if job is None:
                return False
            job.gone = True
            in_prefill = job is self._current and not job.sequence.prefill_s
            self._changed.notify_all()
        job.future.set_exception(error)
        if in_prefill:
            self._interrupt()
        return True

    def drain(self, timeout: float) -> bool:
        """Hand back what waits; give what runs `timeout` seconds, then hand that back too; True if it finished."""
        with self._changed:
            self._draining = True
            waiting = [id_ for id_, job in self._live.items() if job is not self._current]
        self._hand_back(waiting)
        with self._changed:
            finished = self._changed.wait_for(lambda: not self._live, timeout)
            remaining = list(self._live)
        self._hand_back(remaining)
        return finished

    def close(self) -> None:
        """Hand back what is unfinished and stop the thread. The process must be closed first, or its call finishes."""
        self.drain(0)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def stats(self) -> EngineStats:
        """Return a snapshot of the counters."""
        with self._changed:
            running = int(self._current is not None)
            return self._stats.snapshot(running=running, waiting=max(0, len(self._live) - running))

    def _check(self, request: GenerationRequest) -> None:
        params = request.params
        if params.ignore_eos:
            raise InvalidInputError("beam search ends outputs at the end token; drop ignore_eos", field="ignore_eos")
        needed = self._process.info.beam_bytes(params.num_beams, len(request.prompt_ids), params.max_tokens)
        total = psutil.virtual_memory().total
        if needed > total:
            raise InvalidInputError(
                f"{params.num_beams} beams of {len(request.prompt_ids) + params.max_tokens} tokens take"
                f" {needed >> 20} MiB and this host has {total >> 20} MiB; lower num_beams or max_tokens",
                field="num_beams",
            )

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="genai-beams", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while (job := self._next()) is not None:
            outcome = self._run(job)
            with self._changed:
                self._current = None
            if outcome is not None:
                self._settle(job, outcome)

    def _next(self) -> _Job | None:
        while True:
            self._expire()
            with self._changed:
                if self._closing:
                    return None
                if self._queue:
                    _, _, job = heapq.heappop(self._queue)
                    if not job.gone:
                        self._current, job.sequence.admitted_at = job, time.monotonic()
                        return job
                else:
                    self._changed.wait()

    def _run(self, job: _Job) -> GenerationOutput | TokenmillError | None:
        """Return what came of the search; None when it was ended from outside."""
        search = BeamSearch(self._process, self._decode, job.sequence)
        try:
            for _ in search.steps():
                self._count(job)
                self._expire()
                if job.gone:
                    self._process.call("drop_beams")
                    return None
            return search.output()
        except TokenmillError as error:
            return error
        except Exception as error:  # noqa: BLE001  # any fault of the runtime ends this search, not the engine
            return None if job.gone else step_failed(error)

    def _count(self, job: _Job) -> None:
        if job.sequence.first_token_at:
            self._stats.count_step(1, busy=bool(self._queue))
            self._stats.generated_tokens += 1
        else:
            self._stats.count_prefill(len(job.sequence.prompt_ids))

    def _expire(self) -> None:
        now = time.monotonic()
        with self._changed:
            deadlines = [(id_, job.sequence.request.deadline) for id_, job in self._live.items()]
        for id_, deadline in deadlines:
            if deadline is not None and deadline <= now:
                self.abort(id_, DeadlineExceededError("the job's deadline passed before it finished"))

    def _settle(self, job: _Job, outcome: GenerationOutput | TokenmillError) -> None:
        with self._changed:
            if job.gone:
                return
            del self._live[job.sequence.request.id]
            succeeded = isinstance(outcome, GenerationOutput)
            self._stats.finished += succeeded
            self._stats.failed += not succeeded
            self._changed.notify_all()
        if isinstance(outcome, GenerationOutput):
            job.future.set_result(outcome)
        else:
            job.future.set_exception(outcome)

    def _hand_back(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.abort(request_id, stopping())
