"""How long the fleet has been away, and how long to wait before asking again."""

import random
import time

FIRST_DELAY_SECONDS = 0.25
LONGEST_DELAY_SECONDS = 10.0
LONGEST_RETRY_AFTER_SECONDS = 120.0


class Outage:
    """Shared by all calls of a client: one that gets through ends the outage for all."""

    def __init__(self, first_limit: float, later_limit: float) -> None:
        """Allow `first_limit` seconds before the first answer ever, `later_limit` seconds afterwards."""
        self._limit = first_limit
        self._later_limit = later_limit
        self._since: float | None = None
        self.reason: str | None = None

    def end(self) -> None:
        """Note that the fleet answered."""
        self._since = None
        self.reason = None
        self._limit = self._later_limit

    def note(self, reason: str) -> bool:
        """Note one more failure; True once the outage has lasted longer than allowed."""
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        self.reason = reason
        return now - self._since > self._limit


def delay_before(attempt: int, retry_after: str | None) -> float:
    """Return the seconds to wait before `attempt` + 1: what the server asked for, else exponential with jitter."""
    if retry_after is not None and retry_after.isdecimal():
        asked = min(float(retry_after), LONGEST_RETRY_AFTER_SECONDS)
        return asked + random.uniform(0, FIRST_DELAY_SECONDS)  # noqa: S311  # jitter, no secret
    ceiling = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** min(attempt, 10))
    return random.uniform(ceiling / 2, ceiling)  # noqa: S311  # jitter, no secret
