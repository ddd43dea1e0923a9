"""Jobs of mixed lengths, always more than there are slots: what a busy worker sees."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from shared.sampling import SamplingParams
from workers.engine import Engine, EngineConfig, GenerationRequest, ModelRunner

_SEED = 20250101
_LOWEST_ID = 100  # below lie control tokens


@dataclass(frozen=True)
class Workload:
    """Lengths in tokens, both ends included; the window in seconds."""

    prompts: tuple[int, int] = (30, 300)
    outputs: tuple[int, int] = (16, 64)
    window_s: float = 8.0

    @property
    def longest(self) -> int:
        """Tokens a slot has to hold."""
        return self.prompts[1] + self.outputs[1]

    @property
    def tokens_per_job(self) -> float:
        """Mean of prompt and output together."""
        return (sum(self.prompts) + sum(self.outputs)) / 2


FULL = Workload()
QUICK = Workload(prompts=(8, 24), outputs=(4, 12), window_s=0.7)


@dataclass(frozen=True)
class Work:
    """What one worker computed within `seconds`, and the CPU time that took."""

    prompt_tokens: int
    generated_tokens: int
    seconds: float
    cpu_seconds: float

    def jobs(self, workload: Workload) -> float:
        """Return how many average jobs that is; prompts and outputs count half each, as they come in bursts."""
        prompts, outputs = sum(workload.prompts) / 2, sum(workload.outputs) / 2
        return (self.prompt_tokens / prompts + self.generated_tokens / outputs) / 2


def measure(runner: ModelRunner, workload: Workload, slots: int, batched_tokens: int) -> Work:
    """Run jobs on `slots` rows of `runner` until they flow evenly, then count for the window."""
    config = EngineConfig(
        max_num_seqs=slots,
        max_num_batched_tokens=batched_tokens,
        admission_wait_s=0,
        prefix_cache_bytes=0,
        max_swap_tokens=0,
    )
    engine, jobs = Engine(runner, lambda _: "", config), _jobs(workload, runner.vocab_size)
    _run(engine, jobs, slots, workload.window_s, until_finished=slots)
    before, start, cpu = engine.stats(), time.monotonic(), time.process_time()
    _run(engine, jobs, slots, workload.window_s)
    after, seconds, used = engine.stats(), time.monotonic() - start, time.process_time() - cpu
    for number in range(after.finished + after.running + after.waiting):
        engine.cancel(str(number))
    engine.step()
    return Work(
        after.prompt_tokens - before.prompt_tokens, after.generated_tokens - before.generated_tokens, seconds, used
    )


def _run(
    engine: Engine, jobs: Iterator[GenerationRequest], slots: int, seconds: float, until_finished: int | None = None
) -> None:
    """Step for `seconds`, or until so many jobs are done; as many as there are slots wait at any time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stats = engine.stats()
        if until_finished is not None and stats.finished >= until_finished:
            return
        for _ in range(2 * slots - stats.running - stats.waiting):
            engine.submit(next(jobs))
        engine.step()


def _jobs(workload: Workload, vocab_size: int) -> Iterator[GenerationRequest]:
    chance, number = random.Random(_SEED), 0  # noqa: S311  # lengths, not secrets
    while True:
        prompt = [chance.randrange(_LOWEST_ID, vocab_size) for _ in range(chance.randint(*workload.prompts))]
        params = SamplingParams(max_tokens=chance.randint(*workload.outputs), ignore_eos=True)
        yield GenerationRequest(str(number), prompt, params)
        number += 1
