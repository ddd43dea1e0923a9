"""The states of a job and the only transitions between them.

    queued ──claim──▶ running ──finish──▶ completed
      │  ▲               │ ├─ no retry mends it ─▶ failed
      │  └──requeue──────┘ ├─ attempts used up ──▶ dead
      │                    ├─ client asked ──────▶ cancelled
      └─ cancelled/expired └─ deadline passed ───▶ expired

`retry` (an operator's or client's wish) takes failed, dead, cancelled or expired back to queued. A completed job
never changes. Every UPDATE of `job.state` names its source states through `sources_of`.
"""

from enum import StrEnum


class JobState(StrEnum):
    """State of a job, as stored and as shown to clients (`status`)."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DEAD = "dead"

    @property
    def terminal(self) -> bool:
        """Whether no worker will touch the job any more."""
        return self in TERMINAL


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.DEAD})
RETRYABLE = TERMINAL - {JobState.COMPLETED}

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.EXPIRED}),
    # running → running is a claim after the lease of an earlier attempt ran out.
    JobState.RUNNING: TERMINAL | {JobState.QUEUED, JobState.RUNNING},
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
    JobState.EXPIRED: frozenset({JobState.QUEUED}),
    JobState.DEAD: frozenset({JobState.QUEUED}),
}


def sources_of(target: JobState) -> frozenset[JobState]:
    """States from which `target` may be reached."""
    return frozenset(source for source, targets in TRANSITIONS.items() if target in targets)


class Priority(StrEnum):
    """Priority of a job as clients name it."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"

    @property
    def broker_level(self) -> int:
        """Level for Celery on Redis, where 0 is served first (celery issue 4028)."""
        return {"high": 0, "normal": 3, "low": 6}[self.value]
