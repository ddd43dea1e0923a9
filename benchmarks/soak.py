"""Memory of the engine over many real steps: resident set at the start, at the end, and its slope between.

usage: python -m benchmarks.soak MODEL_DIR [--steps 10000] [--rows 8]

Jobs of many lengths keep every slot taken: half share an instruction, some are urgent and set others aside, some are
cancelled. The slope is a least-squares fit over the second half, when buffers and caches have reached their size.
"""

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from shared.sampling import SamplingParams
from workers.engine import Engine, EngineConfig, GenerationRequest
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig

SLOT_TOKENS = 512
INSTRUCTION_TOKENS = 150
LOW, HIGH = 6, 0
SOMETIMES = 0.02
SAMPLES = 100


class Load:
    """Keeps a few more jobs in the engine than it has rows."""

    def __init__(self, engine: Engine, rows: int) -> None:
        """Start with nothing submitted."""
        self._engine, self._rows = engine, rows
        self._random = random.Random(3)  # noqa: S311  # a load, not a secret
        self._submitted = 0

    def top_up(self) -> None:
        """Submit what is missing, now and then an urgent job on top, and cancel one."""
        stats = self._engine.stats()
        for _ in range(self._rows + 3 - stats.running - stats.waiting):
            self._engine.submit(self._request(LOW))
        if self._random.random() < SOMETIMES:
            self._engine.submit(self._request(HIGH))
        if self._random.random() < SOMETIMES:
            self._engine.cancel(str(self._submitted - 2))

    def _request(self, priority: int) -> GenerationRequest:
        self._submitted += 1
        shared = range(100, 100 + INSTRUCTION_TOKENS) if self._random.random() < 1 / 2 else ()
        own = self._random.choices(range(100, 20_000), k=self._random.randint(1, 60))
        params = SamplingParams(max_tokens=self._random.randint(4, 120), ignore_eos=True, seed=self._submitted)
        return GenerationRequest(str(self._submitted), [*shared, *own], params, priority)


def resident_bytes(engine: Engine, load: Load, steps: int) -> Iterator[int]:
    """Run `steps` steps; yield the resident set `SAMPLES` times."""
    process, every = psutil.Process(), max(1, steps // SAMPLES)
    for step in range(steps):
        load.top_up()
        engine.step()
        if step % every == 0:
            yield process.memory_info().rss


def slope(samples: list[int], steps: int) -> float:
    """Return bytes per step over the second half of `samples`."""
    half = np.asarray(samples[len(samples) // 2 :], np.float64)
    return float(np.polyfit(np.arange(half.size), half, 1)[0]) * len(samples) / steps


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=8)
    arguments = parser.parse_args()
    runner = ContinuousRunner(arguments.model_dir, RunnerConfig(arguments.rows, SLOT_TOKENS, 1))
    runner.warm_up()
    config = EngineConfig(arguments.rows, admission_wait_s=0, prefix_cache_bytes=64 << 20)
    engine, start = Engine(runner, lambda ids: " ".join(map(str, ids)), config), time.monotonic()
    samples = list(resident_bytes(engine, Load(engine, arguments.rows), arguments.steps))
    stats, seconds = engine.stats(), time.monotonic() - start
    engine.close()
    print(f"{stats.steps} steps in {seconds:.0f} s, {stats.finished} jobs, {stats.failed} failed or cancelled")
    print(f"{stats.cached_tokens} prompt tokens reused, {stats.preemptions} preemptions")
    print(f"occupancy {stats.occupancy:.3f}, while jobs waited {stats.busy_occupancy:.3f}")
    print(f"resident set: start {samples[0] >> 20} MiB, end {samples[-1] >> 20} MiB")
    print(f"slope over the second half: {slope(samples, arguments.steps) * 1000 / 1024:.1f} KiB per 1000 steps")


if __name__ == "__main__":
    main()
