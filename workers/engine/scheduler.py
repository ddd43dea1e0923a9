"""Which sequences the next step computes. Pure Python: no numpy, no runtime.

The running list is the layout of the KV cache: a sequence's index is its row. Rows that decode come first and have no
gap, so no idle row is ever computed; whoever is still prefilling stands behind them.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shared.errors import ConfigurationError
from workers.engine.sequence import Sequence

MAX_ADMISSION_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of one step. `prefill_chunk_size` is fixed so that chunking never depends on the mix."""

    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    prefill_chunk_size: int = 128
    admission_wait_s: float = 0.02

    def __post_init__(self) -> None:
        """Refuse limits that cannot work.

        Raises:
            ConfigurationError: a limit is out of range; names it.
        """
        for name in ("max_num_seqs", "max_num_batched_tokens", "prefill_chunk_size"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1", field=name)
        if not 0 <= self.admission_wait_s <= MAX_ADMISSION_WAIT_S:
            raise ConfigurationError(
                f"admission_wait_s must be between 0 and {MAX_ADMISSION_WAIT_S}", field="admission_wait_s"
            )


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Prompt tokens `start` to `stop` of a sequence, computed alone into its row."""

    sequence: Sequence
    row: int
    start: int
    stop: int

    @property
    def completes(self) -> bool:
        """Whether the prompt is whole after this chunk, so that its logits give the first token."""
        return self.stop == len(self.sequence.prompt_ids)


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The work of one step: prompt chunks in order, and the sequences in rows 0, 1, ... that decode one token."""

    prefills: tuple[PrefillChunk, ...]
    decodes: tuple[Sequence, ...]

    def __bool__(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self.prefills or self.decodes)


@dataclass(frozen=True, slots=True)
class Move:
    """The first `tokens` tokens of KV row `source` go to row `target`."""

    source: int
    target: int
    tokens: int


class Scheduler:
    """Admits by priority, then deadline, then arrival; keeps the running rows dense. Not thread safe."""

    def __init__(self, config: SchedulerConfig) -> None:
        """Start empty."""
        self.config = config
        self.running: list[Sequence] = []
        self.waiting: set[Sequence] = set()
        self._queue: list[tuple[tuple[int, float], int, Sequence]] = []
        self._deadlines: list[tuple[float, int, Sequence]] = []
        self._arrivals = itertools.count()

    def add(self, sequence: Sequence) -> None:
        """Queue `sequence` for admission."""
        order = next(self._arrivals)
        self.waiting.add(sequence)
        heapq.heappush(self._queue, (sequence.urgency, order, sequence))
        if sequence.request.deadline is not None:
            heapq.heappush(self._deadlines, (sequence.request.deadline, order, sequence))

    def expired(self, now: float) -> list[Sequence]:
        """Return live sequences whose deadline has passed; each is returned once."""
        late = []
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].finished):
            _, _, sequence = heapq.heappop(self._deadlines)
            if not sequence.finished:
                late.append(sequence)
        return late

    def wait_time(self, now: float) -> float | None:
        """Return the seconds until a step has work: 0 when it has, None when nobody is here.

        An idle engine waits a moment after the first arrival, so that jobs sent together are ordered together.
        """
        if self.running:
            return 0.0
        if not self.waiting:
            return None
        if len(self.waiting) >= self.config.max_num_seqs:
            return 0.0
        first = min(sequence.arrived_at for sequence in self.waiting)
        return max(0.0, first + self.config.admission_wait_s - now)

    def schedule(self, now: float) -> StepBatch:
        """Return the next step, admitting sequences into free rows."""
        decodes = tuple(itertools.takewhile(lambda sequence: sequence.prefilled, self.running))
        if self.wait_time(now):
            return StepBatch((), ())
        return StepBatch(tuple(self._prefills(self.config.max_num_batched_tokens - len(decodes), now)), decodes)

    def remove(self, sequences: Iterable[Sequence]) -> list[Move]:
        """Take `sequences` out, waiting or running; return the KV moves that close the gaps, in order."""
        gone = set(sequences)
        for sequence in gone:
            sequence.finished = True
        self.waiting -= gone
        if not self.waiting:
            self._queue.clear()
        rows = [row for row, sequence in enumerate(self.running) if sequence in gone]
        # From the last row down, so that no row is moved that goes away as well.
        return [move for row in reversed(rows) for move in self._close_gap(row)]

    def _prefills(self, budget: int, now: float) -> Iterator[PrefillChunk]:
        first = True
        for row, sequence in self._unprefilled(now):
            for start in range(sequence.num_computed_tokens, len(sequence.prompt_ids), self.config.prefill_chunk_size):
                stop = min(start + self.config.prefill_chunk_size, len(sequence.prompt_ids))
                budget -= stop - start
                if budget < 0 and not first:  # the first chunk always runs: a prompt may not starve
                    return
                first = False
                yield PrefillChunk(sequence, row, start, stop)
            if budget <= 0:
                return

    def _unprefilled(self, now: float) -> Iterator[tuple[int, Sequence]]:
        yield from [(row, sequence) for row, sequence in enumerate(self.running) if not sequence.prefilled]
        while len(self.running) < self.config.max_num_seqs and self.waiting:
            yield len(self.running), self._admit(now)

    def _admit(self, now: float) -> Sequence:
        while True:
            _, _, sequence = heapq.heappop(self._queue)
            if sequence in self.waiting:  # removed ones stay in the heap until they surface
                break
        self.waiting.remove(sequence)
        sequence.admitted_at = now
        self.running.append(sequence)
        return sequence

    def _close_gap(self, row: int) -> Iterator[Move]:
        """Fill `row` with the last row that decodes, and that one's place with the last row of all."""
        decoding = sum(1 for _ in itertools.takewhile(lambda sequence: sequence.prefilled, self.running))
        for source in dict.fromkeys((decoding - 1, len(self.running) - 1)):
            if source > row:
                yield Move(source, row, self.running[source].num_computed_tokens)
                self.running[row] = self.running[source]
                row = source
        self.running.pop()
