"""What every engine is asked to measure, and the clock all of them use."""

import time
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Figures = dict[str, float]
WARM_UP_STEPS = 2


class Measurer(Protocol):
    """An engine held ready in a process of its own. Rates are tokens per CPU-second over all threads."""

    def curve(self, *, rows: int, tokens: int, steps: int) -> Figures:
        """Prefill `rows` unique prompts of `tokens` tokens, decode `steps` tokens each: `prefill`, `decode`.

        `steps` 0 measures prefill alone.
        """
        ...

    def jobs(self, *, workload: str, count: int, max_num_seqs: int, prefix_cache: bool = False) -> Figures:
        """Run the named workload to its end: `jobs_per_cpu_minute`, `cpu_s`, `wall_s` and what the engine counts."""
        ...

    def perplexity(self, *, token_ids: list[int]) -> Figures:
        """Score a text one token after another, as it would be decoded: `perplexity`."""
        ...


class Clock:
    """CPU seconds of this process, all threads, and wall seconds, since it was made."""

    def __init__(self) -> None:
        """Start."""
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far."""
        return time.process_time() - self._cpu

    @property
    def wall_s(self) -> float:
        """Wall seconds so far."""
        return time.perf_counter() - self._wall

    def job_figures(self, count: int) -> Figures:
        """Return the figures of `count` jobs done by now."""
        cpu, wall = self.cpu_s, self.wall_s
        return {"jobs_per_cpu_minute": count / cpu * 60, "cpu_s": cpu, "wall_s": wall}


def perplexity_of(token_ids: list[int], logits: Iterable[NDArray[np.float32]]) -> Figures:
    """Return the perplexity of `token_ids[1:]`; `logits[i]` [vocab] follow token i. Source: exp of the mean NLL."""
    losses = []
    for target, row in zip(token_ids[1:], logits, strict=False):
        values = row.astype(np.float64)
        top = values.max()
        losses.append(top + np.log(np.exp(values - top).sum()) - values[target])
    return {"perplexity": float(np.exp(np.mean(losses)))}
