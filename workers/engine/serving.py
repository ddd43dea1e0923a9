"""What serves jobs in a worker, whichever runners stand behind it."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from shared.errors import TokenmillError, WorkerStoppingError
from workers.engine.engine_stats import EngineStats
from workers.engine.model_runner import ModelRunner
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sequence import GenerationOutput, GenerationRequest


class Drains(Protocol):
    """Something that can stop admission."""

    def drain(self, timeout: float) -> bool:
        """Hand back what waits at once, and what runs after `timeout` seconds; True if all finished."""
        ...


class Serving(Drains, Protocol):
    """The surface of `Engine` and of `Router`."""

    @property
    def config(self) -> SchedulerConfig:
        """Limits of what serves plain jobs."""
        ...

    @property
    def runner(self) -> ModelRunner:
        """The runner of plain jobs."""
        ...

    def start(self) -> None:
        """Warm up and begin."""
        ...

    def submit(self, request: GenerationRequest) -> Future[GenerationOutput]:
        """Queue a generation."""
        ...

    def cancel(self, request_id: str) -> bool:
        """End a generation whose client cancelled it."""
        ...

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End a generation with `error`."""
        ...

    def trim(self) -> None:
        """Give up the KV kept for reuse, soon."""
        ...

    def close(self) -> None:
        """Hand back what is unfinished and free the model."""
        ...

    def stats(self) -> EngineStats:
        """Return a snapshot of the counters."""
        ...


def stopping() -> WorkerStoppingError:
    """Return what hands a job back."""
    return WorkerStoppingError("the worker is stopping; the job goes back to the queue")


def drain_together(engines: Iterable[Drains], timeout: float) -> bool:
    """Drain all of `engines` at once; True if everything that ran finished."""
    parts = list(engines)
    with ThreadPoolExecutor(len(parts), thread_name_prefix="drain") as pool:
        return all(list(pool.map(lambda part: part.drain(timeout), parts)))
