"""What follows a failed attempt: another one later, or the end. Pure functions of what is known.

Delays are exponential with full jitter, so that jobs which failed together do not come back together.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.errors import CancelledError, DeadlineExceededError, ServiceUnavailableError, WorkerStoppingError
from shared.leases import JobError
from shared.states import JobState

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 300.0
BLAMELESS = frozenset({WorkerStoppingError.code, ServiceUnavailableError.code})
ENDS = {CancelledError.code: JobState.CANCELLED, DeadlineExceededError.code: JobState.EXPIRED}

Uniform = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Queue the job again after `delay`; `free` gives the attempt back too."""

    delay: timedelta
    free: bool


@dataclass(frozen=True, slots=True)
class Close:
    """End the job in `state`."""

    state: JobState


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What the policy looks at: the attempt's number, how many there may be, the time and the deadline."""

    attempt: int
    max_attempts: int
    now: datetime
    deadline: datetime | None


def decide(error: JobError, facts: AttemptFacts, uniform: Uniform = random.uniform) -> RetryAfter | Close:
    """Return what follows `error`.

    A worker that stops, or whose database is away, is not the job's fault: the attempt is given back.
    """
    if error.code in ENDS:
        return Close(ENDS[error.code])
    if error.code in BLAMELESS:
        return RetryAfter(timedelta(0), free=True)
    if not error.retryable:
        return Close(JobState.FAILED)
    if facts.attempt >= facts.max_attempts:
        return Close(JobState.DEAD)
    delay = backoff(facts.attempt, uniform)
    if facts.deadline is not None and facts.now + delay >= facts.deadline:
        return Close(JobState.EXPIRED)
    return RetryAfter(delay, free=False)


def backoff(attempt: int, uniform: Uniform = random.uniform) -> timedelta:
    """Return a delay drawn between 1 s and `2 ** attempt` s, at most 5 min (`attempt` counts from 1)."""
    ceiling = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 16))
    return timedelta(seconds=uniform(FIRST_DELAY_SECONDS, ceiling))
