"""A bulk run: documents in flight up to a bound, results written in input order."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from cli.bulk import record as records
from cli.bulk.document import Document, Fault
from cli.bulk.fleet_client import FleetClient, Job, RefusedError
from cli.bulk.plan import Plan
from cli.bulk.record import Record
from cli.bulk.result_file import ResultFile
from cli.bulk.tally import Tally
from shared.errors import ServiceUnavailableError, TokenmillError
from shared.states import RETRYABLE, TERMINAL

# Few connections serve any number of jobs: each waits for the oldest unfinished job, and finds those behind it done.
SUBMITTERS = 8
POLLERS = 8
TICK_SECONDS = 0.25
# Finished results wait for an older document at most this many times the number in flight.
WINDOW_FACTOR = 4


class Watcher(Protocol):
    """Shows progress; called several times a second."""

    def show(self, tally: Tally, trouble: str | None) -> None:
        """Show the counts so far, and why nothing moves if something is in the way."""


class BulkRun:
    """Runs documents through the fleet into a result file; `tally` counts."""

    def __init__(  # noqa: PLR0913  # one argument per collaborator
        self,
        client: FleetClient,
        plan: Plan,
        results: ResultFile,
        tally: Tally,
        *,
        in_flight: int,
        stall_limit: float | None = None,
    ) -> None:
        """Keep up to `in_flight` jobs unfinished; give up after `stall_limit` seconds in which none ends."""
        self.tally = tally
        self._client = client
        self._plan = plan
        self._results = results
        self._stall_limit = stall_limit
        self._in_flight = asyncio.Semaphore(in_flight)
        self._submitters = asyncio.Semaphore(SUBMITTERS)
        self._pollers = asyncio.Semaphore(POLLERS)
        self._window: deque[asyncio.Future[Record]] = deque()
        self._window_limit = in_flight * WINDOW_FACTOR

    async def run(self, documents: Iterable[Document], watcher: Watcher) -> None:
        """Process every document once and write its line.

        Raises:
            TokenmillError: the fleet is away or stuck for too long, or refuses every document; written lines stay.
        """
        try:
            async with asyncio.TaskGroup() as group:
                ticker = group.create_task(self._tick(watcher))
                await self._feed(group, documents)
                ticker.cancel()
        except ExceptionGroup as group:
            # Not `except*`: what is raised inside that comes out wrapped in another group.
            expected = group.subgroup(TokenmillError)
            if expected is None:
                raise
            raise _first(expected) from None
        finally:
            watcher.show(self.tally, self._client.outage.reason)
        self._results.finish()

    async def _feed(self, group: asyncio.TaskGroup, documents: Iterable[Document]) -> None:
        for document in documents:
            await self._start(group, document)
            # Also lets Ctrl-C through while earlier results are skipped.
            await asyncio.sleep(0)
            await self._write_heads(self._window_limit)
        await self._write_heads(0)

    async def _start(self, group: asyncio.TaskGroup, document: Document) -> None:
        key = self._plan.key_of(document)
        earlier = self._results.take(key)
        if earlier is None:
            await self._in_flight.acquire()
            self._window.append(group.create_task(self._process(document, key)))
            return
        # The document may have moved since that run.
        record = {**earlier.record, "index": document.index}
        self.tally.add(record, reused=True)
        if not earlier.in_place:
            self._window.append(_finished(record))

    async def _write_heads(self, allowed: int) -> None:
        while self._window and (self._window[0].done() or len(self._window) > allowed):
            self._results.append(await self._window[0])
            self._window.popleft()

    async def _process(self, document: Document, key: str) -> Record:
        try:
            record = await self._record(document, key)
        finally:
            self._in_flight.release()
        self.tally.add(record)
        return record

    async def _record(self, document: Document, key: str) -> Record:
        if document.fault:
            return records.of_fault(document, key, document.fault)
        try:
            return records.of_job(document, key, await self._final_job(document, key))
        except RefusedError as error:
            return records.of_fault(document, key, Fault(error.reason, error.message))

    async def _final_job(self, document: Document, key: str) -> Job:
        async with self._submitters:
            job = await self._submit(document, key)
        while job["status"] not in TERMINAL:
            async with self._pollers:
                job = await self._client.wait(job["id"])
        return job

    async def _submit(self, document: Document, key: str) -> Job:
        job, replayed = await self._client.submit(self._plan.body_of(document), key)
        if replayed and job["status"] in RETRYABLE:
            # Refused when someone else has retried it meanwhile, or its content is gone: its state tells.
            with suppress(RefusedError):
                job = await self._client.retry(job["id"])
        return job

    async def _tick(self, watcher: Watcher) -> None:
        while True:
            watcher.show(self.tally, self._client.outage.reason)
            await asyncio.sleep(TICK_SECONDS)
            self._refuse_stall()

    def _refuse_stall(self) -> None:
        quiet = time.monotonic() - self.tally.last_change
        if self._stall_limit is not None and quiet > self._stall_limit:
            raise ServiceUnavailableError(
                f"no job ended for {quiet:.0f} s: check `tokenmill workers`, or allow more with --wait-timeout"
            )


def _finished(record: Record) -> asyncio.Future[Record]:
    future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
    future.set_result(record)
    return future


def _first(errors: BaseExceptionGroup[TokenmillError]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
