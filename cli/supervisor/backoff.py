"""When a crashed process may start again."""

from dataclasses import dataclass

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
STABLE_SECONDS = 60.0


@dataclass
class Backoff:
    """Doubles from 0.5 s to 30 s; forgets once a run has lasted a minute."""

    seconds: float = FIRST_SECONDS

    def after_run_of(self, lasted: float) -> float:
        """Return the pause before the next start, given how many seconds the last run lasted."""
        pause = FIRST_SECONDS if lasted >= STABLE_SECONDS else self.seconds
        self.seconds = min(pause * 2, LONGEST_SECONDS)
        return pause
