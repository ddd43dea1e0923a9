"""Our engine: whole steps, that is scheduling, computing, sampling and handing out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from benchmarks.sides.measurement import WARM_UP_STEPS, Clock, Figures, perplexity_of
from benchmarks.workloads import MIXED_MODEL_LEN, SHARED_MODEL_LEN, BenchmarkJob, curve_prompts
from benchmarks.workloads import workload as named_workload
from shared.sampling import SamplingParams
from workers.engine import Engine, EngineConfig, GenerationRequest
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.engine.model_runner import RowTokens

CURVE_MAX_NUM_SEQS = 64
LONG_CONTEXT_MAX_NUM_SEQS = 16
LENGTH_STEP = 256
PREFIX_CACHE_BYTES = 512 << 20


class EngineSide:
    """A `Measurer`. The runner is built anew when another shape of KV cache is asked for."""

    def __init__(self, directory: Path) -> None:
        """Take a model directory; nothing is loaded yet."""
        self.version = f"onnxruntime {onnxruntime.__version__}"
        self._directory = directory
        self._shape = (0, 0)
        self._runner: ContinuousRunner | None = None

    def curve(self, *, rows: int, tokens: int, steps: int) -> Figures:
        """See `Measurer`. All prompts fit the first step, so that those after it only decode."""
        length = -(-(tokens + WARM_UP_STEPS + steps + 1) // LENGTH_STEP) * LENGTH_STEP
        slots = CURVE_MAX_NUM_SEQS if length == LENGTH_STEP else max(rows, LONG_CONTEXT_MAX_NUM_SEQS)
        budget = rows * (tokens + 1)
        config = EngineConfig(rows, max_num_batched_tokens=budget, admission_wait_s=0, prefix_cache_bytes=0)
        engine = Engine(self._runner_of(slots, length), lambda _: "", config)
        for index, prompt in enumerate(curve_prompts(rows, tokens)):
            engine.submit(_request(index, BenchmarkJob(tuple(prompt), steps + WARM_UP_STEPS + 2)))
        clock = Clock()
        while engine.stats().generated_tokens < rows:
            engine.step()
        figures = {"prefill": rows * tokens / clock.cpu_s}
        if steps:
            for _ in range(WARM_UP_STEPS):
                engine.step()
            before, clock = engine.stats().generated_tokens, Clock()
            for _ in range(steps):
                engine.step()
            figures["decode"] = (engine.stats().generated_tokens - before) / clock.cpu_s
        return figures

    def jobs(self, *, workload: str, count: int, max_num_seqs: int, prefix_cache: bool = False) -> Figures:
        """See `Measurer`; adds `occupancy` while somebody waited for a slot, and the prompt tokens that were copied."""
        jobs = named_workload(workload, count)
        length = {"mixed": MIXED_MODEL_LEN, "shared-prefix": SHARED_MODEL_LEN}[workload]
        runner = self._runner_of(max_num_seqs, -(-length // LENGTH_STEP) * LENGTH_STEP)
        engine = Engine(runner, lambda _: "", _config(max_num_seqs, prefix_cache=prefix_cache))
        clock = Clock()
        futures = [engine.submit(_request(index, job)) for index, job in enumerate(jobs)]
        _run(engine)
        figures = clock.job_figures(count)
        cached = sum(future.result().cached_tokens for future in futures)
        return {**figures, "occupancy": engine.stats().busy_occupancy, "cached_tokens": cached}

    def given(self, *, jobs: list[tuple[list[int], int]], max_num_seqs: int, max_model_len: int) -> Figures:
        """Run jobs of prompt ids and `max_tokens` that came from outside, with the limits a worker has."""
        engine = Engine(self._runner_of(max_num_seqs, max_model_len), lambda _: "", EngineConfig(max_num_seqs))
        clock = Clock()
        futures = [engine.submit(_request(i, BenchmarkJob(tuple(ids), new))) for i, (ids, new) in enumerate(jobs)]
        _run(engine)
        figures = clock.job_figures(len(jobs))
        tokens = sum(future.result().completion_tokens for future in futures)
        return {**figures, "occupancy": engine.stats().busy_occupancy, "completion_tokens": tokens}

    def perplexity(self, *, token_ids: list[int]) -> Figures:
        """See `Measurer`."""
        return perplexity_of(token_ids, self._logits(token_ids))

    def _logits(self, token_ids: list[int]) -> Iterator[NDArray[np.float32]]:
        runner = self._runner_of(1, -(-len(token_ids) // LENGTH_STEP) * LENGTH_STEP)
        yield runner.execute([RowTokens(0, token_ids[:1], 0)])[0]
        for position, token_id in enumerate(token_ids[1:-1], 1):
            yield runner.execute([RowTokens(0, [token_id], position)])[0]

    def _runner_of(self, slots: int, length: int) -> ContinuousRunner:
        if self._runner is None or self._shape != (slots, length):
            if self._runner is not None:
                self._runner.close()
            self._runner = None  # frees the old KV cache first
            self._runner = ContinuousRunner(self._directory, RunnerConfig(slots, length, 1))
            self._runner.warm_up()
            self._shape = (slots, length)
        return self._runner


def _request(index: int, job: BenchmarkJob) -> GenerationRequest:
    params = SamplingParams(max_tokens=job.max_tokens, ignore_eos=True)
    return GenerationRequest(str(index), job.prompt_ids, params)


def _config(max_num_seqs: int, *, prefix_cache: bool) -> EngineConfig:
    cache_bytes = PREFIX_CACHE_BYTES if prefix_cache else 0
    return EngineConfig(max_num_seqs=max_num_seqs, admission_wait_s=0, prefix_cache_bytes=cache_bytes)


def _run(engine: Engine) -> None:
    engine.step()
    while (stats := engine.stats()).running or stats.waiting:
        engine.step()


def open_side(model: Path) -> EngineSide:
    """Return the side; the model is loaded by the first measurement."""
    return EngineSide(model)
