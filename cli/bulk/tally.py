"""What a run has achieved so far."""

import time
from collections import Counter, deque

from cli.bulk.record import Record, completed

RATE_WINDOW_SECONDS = 60.0
LISTED_FAILURES = 20


class Tally:
    """Counts over all documents; rates over those this run itself finished."""

    def __init__(self, total: int) -> None:
        """Start the clock for `total` documents."""
        self.total = total
        self.completed = 0
        self.failed = 0
        self.reused = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.entities: Counter[str] = Counter()
        self.failures: list[tuple[str, str]] = []
        self.last_change = self._started = time.monotonic()
        self._fresh_tokens = 0
        self._recent: deque[float] = deque()

    def add(self, record: Record, *, reused: bool = False) -> None:
        """Count one document's final record."""
        usage = record["usage"] or {}
        self.prompt_tokens += usage.get("prompt_tokens", 0)
        self.completion_tokens += usage.get("completion_tokens", 0)
        self.entities.update((record["privacy"] or {}).get("entities", {}))
        if completed(record):
            self.completed += 1
        else:
            self._note_failure(record)
        if reused:
            self.reused += 1
        else:
            self._note_fresh(usage.get("completion_tokens", 0))

    @property
    def done(self) -> int:
        """Documents with a final record."""
        return self.completed + self.failed

    @property
    def seconds(self) -> float:
        """Wall time since the start."""
        return time.monotonic() - self._started

    @property
    def jobs_per_second(self) -> float:
        """Documents finished by this run per second of wall time."""
        return (self.done - self.reused) / max(self.seconds, 1e-9)

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens of this run per second of wall time."""
        return self._fresh_tokens / max(self.seconds, 1e-9)

    @property
    def eta_seconds(self) -> float | None:
        """Remaining time at the rate of the last minute; None before anything finished."""
        self._forget_old()
        if not self._recent:
            return None
        return (self.total - self.done) * min(self.seconds, RATE_WINDOW_SECONDS) / len(self._recent)

    def _note_failure(self, record: Record) -> None:
        self.failed += 1
        if len(self.failures) < LISTED_FAILURES:
            error = record["error"] or {}
            self.failures.append((record["document"], error.get("message") or record["status"]))

    def _note_fresh(self, tokens: int) -> None:
        self._fresh_tokens += tokens
        self.last_change = time.monotonic()
        self._recent.append(self.last_change)

    def _forget_old(self) -> None:
        while self._recent and self._recent[0] < time.monotonic() - RATE_WINDOW_SECONDS:
            self._recent.popleft()
