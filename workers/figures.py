"""What a worker says of itself with each heartbeat: load, memory, slots and token counts."""

import time

import psutil

from shared.models import JsonObject
from workers.engine.serving import Serving
from workers.engine.sleeping_runner import SleepingRunner
from workers.memory_watch import proportional_bytes


class Figures:
    """Figures of this process and its engine; rates are over the time since the last call. One caller only."""

    def __init__(self, engine: Serving, memory_limit: int | None = None) -> None:
        """Begin counting; `memory_limit` in bytes is told along."""
        self._engine, self._memory_limit = engine, memory_limit
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call has nothing to compare with and says 0
        self._seen_at = time.monotonic()
        self._seen_tokens = 0

    def read(self) -> JsonObject:
        """Return the present figures."""
        stats, runner = self._engine.stats(), self._engine.runner
        return {
            "cpu_percent": self._process.cpu_percent(),
            "rss_bytes": self._process.memory_info().rss,
            "pss_bytes": proportional_bytes(),
            "memory_limit_bytes": self._memory_limit,
            "model": "unloaded" if isinstance(runner, SleepingRunner) and runner.asleep else "loaded",
            "runner": "genai" if stats.on_genai else "continuous",
            "genai_bytes": stats.genai_bytes,
            "kv_bytes": runner.kv_bytes,
            "slots": stats.max_num_seqs,
            "running": stats.running,
            "waiting": stats.waiting,
            "occupancy": round(stats.occupancy, 4),
            "busy_occupancy": round(stats.busy_occupancy, 4),
            "tokens_per_second": round(self._rate(stats.generated_tokens), 1),
            "prompt_tokens": stats.prompt_tokens,
            "cached_tokens": stats.cached_tokens,
            "prefix_blocks": stats.prefix_blocks,
            "prefix_bytes": stats.prefix_bytes,
            "prefix_evictions": stats.prefix_evictions,
            "preemptions": stats.preemptions,
            "generated_tokens": stats.generated_tokens,
            "finished": stats.finished,
            "failed": stats.failed,
        }

    def _rate(self, tokens: int) -> float:
        now, before = time.monotonic(), (self._seen_at, self._seen_tokens)
        self._seen_at, self._seen_tokens = now, tokens
        return (tokens - before[1]) / max(now - before[0], 1e-3)
