"""Unloads the model of a worker that has had nothing to do for long; its next job loads it again."""

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from workers.engine.serving import Serving
from workers.engine.sleeping_runner import SleepingRunner

log = structlog.get_logger(__name__)


class IdleUnload:
    """Watches one engine; `tick` is called several times a second, by one thread."""

    def __init__(self, engine: Serving, after: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        """Unload after this long; never when it is zero or the engine's runner cannot."""
        self._engine, self._clock = engine, clock
        runner = engine.runner
        self._runner = runner if isinstance(runner, SleepingRunner) else None
        self._after = after.total_seconds()
        self._seen_calls = -1
        self._idle_since = clock()

    @property
    def broken(self) -> bool:
        """Whether the model could not be loaded again: the process should make room for a fresh one."""
        return self._runner is not None and self._runner.broken

    def tick(self) -> None:
        """Unload if it is time."""
        if self._runner is None or not self._after or self._runner.asleep:
            return
        # The order matters: a sequence that starts after `calls` was read makes `rest` refuse.
        calls, stats, now = self._runner.calls, self._engine.stats(), self._clock()
        if calls != self._seen_calls or stats.running or stats.waiting:
            self._seen_calls, self._idle_since = calls, now
        elif now - self._idle_since >= self._after and self._runner.rest(calls):
            self._engine.trim()  # prefixes kept for reuse take memory too
            log.info("model unloaded: no job for a while", seconds=round(now - self._idle_since))
