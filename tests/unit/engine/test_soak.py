"""Ten thousand steps leave nothing behind."""

import gc
import random
import sys
from collections import deque
from collections.abc import Iterator

from structlog.testing import capture_logs

from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner, Kv, decode
from workers.engine import Engine, EngineConfig, GenerationRequest
from workers.engine.model_runner import Logits
from workers.engine.waiting_queue import WaitingQueue

STEPS = 10_000
SAMPLING = [SamplingParams(max_tokens=3 * count) for count in range(1, 9)]
INSTRUCTIONS = [[3] * 16, [4] * 24, [5] * 8]


class QuickRunner(FakeRunner):
    """Always says the same: here only the book-keeping counts."""

    def _row_logits(self, row: list[Kv]) -> Logits:
        return self._certain(65 + row[-1].token % 2)


def arrivals(engine: Engine, random_: random.Random) -> Iterator[str]:
    """Submit jobs that share prefixes, differ in priority and are cancelled at times, at the pace they are served."""
    for step in range(STEPS):
        if len(engine._live) < 5:
            prompt = [*random_.choice(INSTRUCTIONS), *random_.choices(range(6, 60), k=random_.randint(1, 9))]
            params = SAMPLING[random_.randint(0, 7)]
            deadline = 1e9 if random_.random() < 0.3 else None
            engine.submit(GenerationRequest(str(step), prompt, params, random_.choice([0, 3, 6, 6]), deadline))
            yield str(step)
        if random_.random() < 0.02:
            engine.cancel(str(step - 7))
        engine.step()


def held(engine: Engine) -> dict[str, int]:
    """Return how much the engine's containers hold."""
    core = engine._core
    found = {
        f"{type(owner).__name__}.{name}": len(value)
        for owner in (engine, core, core._scheduler, core._scheduler.waiting, core._executor, core._outputs)
        for name, value in vars(owner).items()
        if isinstance(value, list | dict | set | deque | WaitingQueue)
    }
    return found | {"sightings": len(core._prefixes._sightings), "blocks": len(core._prefixes)}


def test_ten_thousand_steps_leave_nothing_behind() -> None:
    runner = QuickRunner(max_num_seqs=3, max_model_len=64)
    config = EngineConfig(3, 64, 8, admission_wait_s=0, prefix_cache_bytes=500, max_swap_tokens=40)
    engine = Engine(runner, decode, config)
    with capture_logs():
        submitted = sum(1 for _ in arrivals(engine, random.Random(3)))  # noqa: S311  # a load, not a secret
        runner.calls.clear()
        while engine.stats().running or engine.stats().waiting:
            engine.step()
    engine.step()
    stats = engine.stats()
    assert submitted > 500
    assert stats.failed == 0
    assert min(stats.cached_tokens, stats.preemptions, stats.prefix_evictions) > 50
    containers = held(engine)
    limits = {"sightings": 16_384, "blocks": 500 // 128}
    assert {name for name, size in containers.items() if size > limits.get(name, 0)} == set()
    gc.collect()
    assert sys.getrefcount(engine) < 5
    engine.close()
