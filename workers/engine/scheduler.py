"""Which sequences the next step computes. Pure Python: no numpy, no runtime.

The running list is the layout of the KV cache: a sequence's index is its row. Rows that decode come first and have no
gap, so no idle row is ever computed; whoever is still prefilling stands behind them.

Prompts are prefilled first come, first served, not in turns: a step's budget goes to one prompt until it is whole. In
turns all would be whole late and at once; one after another each starts to decode as early as it can, and the mean
time to completion is lower. A long prompt delays those behind it by its own computing time and no more.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from workers.engine.preemption import Shortage, victims
from workers.engine.prefix_cache import PrefixCache
from workers.engine.prefix_keys import PrefixKey
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sequence import Sequence
from workers.engine.step_batch import Move, PrefillChunk, StepBatch, SwapIn, SwapOut, Transfer
from workers.engine.waiting_queue import WaitingQueue


@dataclass(frozen=True, slots=True)
class _Planned:
    sequence: Sequence
    start: int
    stop: int
    chain: tuple[PrefixKey, ...]

    def at(self, row: int) -> PrefillChunk:
        return PrefillChunk(self.sequence, row, self.start, self.stop, self.chain)


class Scheduler:
    """Admits by priority, then deadline, then arrival; keeps the running rows dense. Not thread safe."""

    def __init__(self, config: SchedulerConfig, prefix_cache: PrefixCache | None = None) -> None:
        """Start empty; `prefix_cache` tells which chunks will be copied rather than computed."""
        self.config = config
        self.running: list[Sequence] = []
        self.waiting = WaitingQueue(config.grouping_window)
        self._prefixes = PrefixCache(0) if prefix_cache is None else prefix_cache
        self._soon_cached: set[PrefixKey] = set()
        self._swapped: set[Sequence] = set()
        self._with_deadline: set[Sequence] = set()
        self._next_deadline = math.inf
        self._arrivals = itertools.count()

    def add(self, sequence: Sequence) -> None:
        """Queue `sequence` for admission."""
        sequence.arrival = next(self._arrivals)
        self.waiting.add(sequence)
        self._prefixes.note(sequence.prefix_keys)
        if sequence.request.deadline is not None:
            self._with_deadline.add(sequence)
            self._next_deadline = min(self._next_deadline, sequence.request.deadline)

    def expired(self, now: float) -> list[Sequence]:
        """Return live sequences whose deadline has passed, the earliest first; each is returned once."""
        if now < self._next_deadline:
            return []
        late = {sequence for sequence in self._with_deadline if sequence.urgency[1] <= now}
        self._with_deadline -= late
        self._next_deadline = min((sequence.urgency[1] for sequence in self._with_deadline), default=math.inf)
        return sorted(late, key=lambda sequence: (sequence.urgency[1], sequence.arrival))

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
        """Preempt and admit; return what this step does besides its `decodes`."""
        if self.wait_time(now) != 0:
            return StepBatch((), ())
        self._soon_cached.clear()
        transfers = list(self._preempt())
        planned = list(self._plan(transfers, now))
        rows = {sequence: row for row, sequence in enumerate(self.running)}
        return StepBatch(tuple(transfers), tuple(item.at(rows[item.sequence]) for item in planned))

    def decodes(self) -> tuple[Sequence, ...]:
        """Return the sequences in rows 0, 1, ... that decode one token."""
        return tuple(itertools.takewhile(lambda sequence: sequence.prefilled, self.running))

    def remove(self, sequences: Iterable[Sequence]) -> list[Move]:
        """Take `sequences` out, waiting or running; return the KV moves that close the gaps, in order."""
        gone = set(sequences)
        for sequence in gone:
            sequence.finished = True
            sequence.swapped_kv = None
            self.waiting.discard(sequence)
        self._with_deadline -= gone
        self._swapped -= gone
        return self._vacate(gone)

    def _vacate(self, gone: set[Sequence]) -> list[Move]:
        rows = [row for row, sequence in enumerate(self.running) if sequence in gone]
        # From the last row down, so that no row is moved that goes away as well.
        return [move for row in reversed(rows) for move in self._close_gap(row)]

    def _close_gap(self, row: int) -> Iterator[Move]:
        """Fill `row` with the last row that decodes, and that one's place with the last row of all."""
        for source in dict.fromkeys((len(self.decodes()) - 1, len(self.running) - 1)):
            if source > row:
                yield Move(source, row, self.running[source].num_computed_tokens)
                self.running[row] = self.running[source]
                row = source
        self.running.pop()

    def _preempt(self) -> Iterator[Transfer]:
        """Make room for the most urgent sequence that waits, if somebody less urgent runs."""
        head = next(iter(self.waiting), None)
        if head is None:
            return
        chosen = victims(
            self.running,
            priority=head.request.priority,
            shortage=self._shortage(head),
            swap_room=self.config.max_swap_tokens - sum(sequence.swap_tokens for sequence in self._swapped),
            max_preemptions=self.config.max_preemptions,
        )
        yield from [SwapOut(item, row) for row, item in enumerate(self.running) if item in chosen and item.prefilled]
        yield from self._vacate(set(chosen))
        for sequence in chosen:
            self._put_back(sequence)

    def _put_back(self, sequence: Sequence) -> None:
        sequence.preemptions += 1
        if sequence.prefilled:
            self._swapped.add(sequence)
        else:
            sequence.num_computed_tokens = sequence.cached_tokens = 0
        self.waiting.add(sequence)

    def _shortage(self, sequence: Sequence) -> Shortage:
        limit, reserved = self.config.max_kv_tokens, sum(item.reserved_tokens for item in self.running)
        tokens = 0 if limit is None else reserved + sequence.reserved_tokens - limit
        return Shortage(len(self.running) + 1 - self.config.max_num_seqs, tokens)

    def _plan(self, transfers: list[Transfer], now: float) -> Iterator[_Planned]:
        budget, first = self.config.max_num_batched_tokens - len(self.decodes()), True
        for sequence in self._unprefilled(transfers, now):
            for chunk in self._chunks(sequence):
                budget -= self._cost(chunk)
                if budget < 0 and not first:  # the first chunk always runs: a prompt may not starve
                    return
                first = False
                yield chunk
            if budget <= 0:
                return

    def _chunks(self, sequence: Sequence) -> Iterator[_Planned]:
        size, length = self.config.prefill_chunk_size, len(sequence.prompt_ids)
        for start in range(sequence.num_computed_tokens, length, size):
            chain = sequence.prefix_keys[: start // size + 1] if start + size <= length else ()
            yield _Planned(sequence, start, min(start + size, length), chain)

    def _cost(self, chunk: _Planned) -> int:
        """Return the tokens to compute, and expect a shared chunk in the cache from here on."""
        length = len(chunk.sequence.prompt_ids)
        if chunk.chain and chunk.stop < length and self._is_cached(chunk.chain[-1]):
            return 0
        if chunk.chain and self._prefixes.is_shared(chunk.chain[-1]):
            self._soon_cached.add(chunk.chain[-1])
        return chunk.stop - chunk.start

    def _is_cached(self, key: PrefixKey) -> bool:
        return key in self._prefixes or key in self._soon_cached

    def _reusable(self, sequence: Sequence) -> int:
        """Count the tokens `sequence` need not compute if it is admitted now."""
        if sequence.prefilled:
            return sequence.num_computed_tokens
        return self.config.prefill_chunk_size * sum(
            1 for _ in itertools.takewhile(self._is_cached, sequence.prefix_keys)
        )

    def _unprefilled(self, transfers: list[Transfer], now: float) -> Iterator[Sequence]:
        yield from [sequence for sequence in self.running if not sequence.prefilled]
        while self.waiting:
            sequence = self.waiting.choose(self._reusable)
            if self._shortage(sequence):
                return
            transfers += self._admit(sequence, now)
            yield sequence

    def _admit(self, sequence: Sequence, now: float) -> Iterator[Transfer]:
        self.waiting.take(sequence)
        self._swapped.discard(sequence)
        sequence.admitted_at = sequence.admitted_at or now
        row = len(self.decodes()) if sequence.prefilled else len(self.running)
        if row < len(self.running) and self.running[row].num_computed_tokens:
            yield Move(row, len(self.running), self.running[row].num_computed_tokens)
        self.running.insert(row, sequence)
        if row < len(self.running) - 1:
            self.running.append(self.running.pop(row + 1))
        if sequence.prefilled:
            yield SwapIn(sequence, row)
