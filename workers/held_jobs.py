"""The jobs this worker holds: their fences, and until when each lease is certain."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta


@dataclass(slots=True)
class _Hold:
    fence: int
    lease_ends: float


class HeldJobs:
    """Registry of held jobs, by id. Thread safe.

    Times are `time.monotonic()` values taken *before* the statement that set the lease, so that the lease on record
    never ends earlier than the one noted here.
    """

    def __init__(self, lease: timedelta) -> None:
        """Note leases of this length."""
        self._lease = lease.total_seconds()
        self._changed = threading.Condition()
        self._admitted: set[str] = set()
        self._held: dict[str, _Hold] = {}

    @contextmanager
    def admit(self, job_id: str) -> Iterator[bool]:
        """Enter `job_id` while the block runs; yields False when it is in here already (a duplicate delivery)."""
        with self._changed:
            fresh = job_id not in self._admitted
            self._admitted.add(job_id)
        try:
            yield fresh
        finally:
            if fresh:
                self._leave(job_id)

    def _leave(self, job_id: str) -> None:
        with self._changed:
            self._admitted.discard(job_id)
            self._held.pop(job_id, None)
            self._changed.notify_all()

    def hold(self, job_id: str, fence: int, since: float) -> None:
        """Note a claim made at `since` or later."""
        with self._changed:
            self._held[job_id] = _Hold(fence, since + self._lease)

    def fences(self) -> dict[str, int]:
        """Return job id -> fence of every held job."""
        with self._changed:
            return {job_id: hold.fence for job_id, hold in self._held.items()}

    def renewed(self, fences: Mapping[str, int], since: float) -> None:
        """Note that the leases of `fences` were extended at `since` or later."""
        with self._changed:
            for job_id, fence in fences.items():
                hold = self._held.get(job_id)
                if hold is not None and hold.fence == fence:
                    hold.lease_ends = since + self._lease

    def overdue(self) -> list[str]:
        """Return the jobs whose lease may have ended: another worker may have claimed them."""
        now = time.monotonic()
        with self._changed:
            return [job_id for job_id, hold in self._held.items() if hold.lease_ends <= now]

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until no job is in here; False when `timeout` seconds passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._admitted, timeout)
