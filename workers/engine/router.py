"""Which runner serves a job: the continuous one, unless only onnxruntime-genai can."""

from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Self

from shared.errors import CancelledError, TokenmillError
from shared.sampling import SamplingParams
from workers.engine.engine import Engine
from workers.engine.engine_stats import EngineStats
from workers.engine.genai_engine import SUMMED, GenaiEngine
from workers.engine.model_runner import ModelRunner
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sequence import GenerationOutput, GenerationRequest
from workers.engine.serving import drain_together


def needs_genai(params: SamplingParams) -> bool:
    """Whether only onnxruntime-genai can do what `params` ask for."""
    return params.num_beams > 1 or params.adapter is not None


class Router:
    """The surface of `Engine` over both runners; each job goes to one of them."""

    def __init__(self, genai: GenaiEngine, continuous: Engine | None = None) -> None:
        """Take both; without `continuous` every job goes to onnxruntime-genai."""
        self._genai = genai
        self._falls_back = continuous is None
        self._primary = continuous or genai.plain_lane()

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
        """Close."""
        self.close()

    @property
    def config(self) -> SchedulerConfig:
        """Limits of the engine that serves plain jobs."""
        return self._primary.config

    @property
    def runner(self) -> ModelRunner:
        """The runner of plain jobs."""
        return self._primary.runner

    def start(self) -> None:
        """Warm up what serves plain jobs; beams and adapters load with their first job.

        Raises:
            ModelUnsupportedError: the model does not run.
        """
        if self._falls_back:
            self._genai.load()
        self._primary.start()

    def submit(self, request: GenerationRequest) -> Future[GenerationOutput]:
        """Queue a generation where it can be served; raises what `Engine.submit` and `GenaiEngine.submit` raise."""
        if needs_genai(request.params):
            return self._genai.submit(request)
        return self._primary.submit(request)

    def cancel(self, request_id: str) -> bool:
        """End a generation with `CancelledError`; return whether it was still unfinished."""
        return self.abort(request_id, CancelledError("the job was cancelled"))

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End a generation with `error` at once."""
        return self._primary.abort(request_id, error) or self._genai.abort(request_id, error)

    def drain(self, timeout: float) -> bool:
        """Stop admission to both; see `Engine.drain`."""
        return drain_together((self._primary, self._genai), timeout)

    def close(self) -> None:
        """Hand back what is unfinished and free both models."""
        self.drain(0)
        self._genai.close()
        self._primary.close()

    def trim(self) -> None:
        """Give up the KV kept for reuse, soon."""
        self._primary.trim()

    def stats(self) -> EngineStats:
        """Return the counters of both; slots, steps and occupancy are those of the runner of plain jobs."""
        own, others = self._primary.stats(), self._genai.stats()
        if self._falls_back:
            return replace(others, on_genai=1, genai_bytes=self._genai.child_bytes())
        sums = {name: getattr(own, name) + getattr(others, name) for name in SUMMED}
        return replace(own, **sums, genai_bytes=self._genai.child_bytes())
