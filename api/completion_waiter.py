"""Long polls: one query for all of them together, every 100 ms or rarer if they are many; none while nobody waits."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator

from shared import jobs_repository
from shared.database import Database

POLL_SECONDS = 0.1
MANY = 100  # so many jobs are looked up every 100 ms; ten times as many every second
LONGEST_SECONDS = 1.0


class CompletionWaiter:
    """Wakes those who wait for a job to end. Lives on one event loop."""

    def __init__(self, database: Database) -> None:
        """Look for finished jobs in `database`."""
        self._database = database
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, job_id: str, seconds: float) -> None:
        """Return when the job ended, after `seconds`, or when the process stops.

        Raises:
            SQLAlchemyError: the database went away meanwhile.
        """
        if seconds <= 0 or self._closed:
            return
        with self._registered(job_id) as future, contextlib.suppress(TimeoutError):
            await asyncio.wait_for(future, seconds)

    @contextlib.contextmanager
    def _registered(self, job_id: str) -> Iterator[asyncio.Future[None]]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[job_id].add(future)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll(), name="completion-poller")
        try:
            yield future
        finally:
            self._forget(job_id, future)

    def _forget(self, job_id: str, future: asyncio.Future[None]) -> None:
        self._waiting[job_id].discard(future)
        if not self._waiting[job_id]:
            del self._waiting[job_id]

    async def _poll(self) -> None:
        while self._waiting:
            asked = list(self._waiting)
            try:
                finished = await asyncio.to_thread(self._finished_among, asked)
            except Exception as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it
                self._fail(asked, error)
            else:
                self._wake(finished)
            await asyncio.sleep(min(POLL_SECONDS * max(1.0, len(asked) / MANY), LONGEST_SECONDS))

    def _finished_among(self, job_ids: list[str]) -> set[str]:
        with self._database.transaction() as session:
            return jobs_repository.finished_among(session, job_ids)

    def _wake(self, job_ids: set[str]) -> None:
        for future in self._futures(job_ids):
            future.set_result(None)

    def _fail(self, job_ids: list[str], error: Exception) -> None:
        for future in self._futures(set(job_ids)):
            future.set_exception(error)

    def _futures(self, job_ids: set[str]) -> list[asyncio.Future[None]]:
        return [future for job_id in job_ids for future in self._waiting.get(job_id, ()) if not future.done()]

    def release(self) -> None:
        """Wake everybody, now and from now on: the process is stopping."""
        self._closed = True
        self._wake(set(self._waiting))
