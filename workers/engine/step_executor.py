"""Runs a step on the runner, and finds the one sequence that makes it fail."""

import time
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many
from contextlib import suppress
from dataclasses import dataclass

from workers.engine.engine_stats import EngineStats
from workers.engine.model_runner import Logits, ModelRunner
from workers.engine.prefix_cache import PrefixCache
from workers.engine.sequence import Sequence
from workers.engine.step_batch import Move, PrefillChunk, StepBatch, SwapIn, SwapOut, Transfer


@dataclass(frozen=True, slots=True)
class RowsDone:
    """Sequences whose next token can be chosen from `logits` [rows, vocab], valid until the next one is asked for."""

    sequences: tuple[Sequence, ...]
    logits: Logits


@dataclass(frozen=True, slots=True)
class RowFailed:
    """A sequence whose computation raised."""

    sequence: Sequence
    error: Exception


RowOutcome = RowsDone | RowFailed


class StepExecutor:
    """Computes the chunks and the decode rows of a step. A failing sequence fails alone."""

    def __init__(self, runner: ModelRunner, prefix_cache: PrefixCache, stats: EngineStats) -> None:
        """Take the runner whose KV rows the scheduler lays out, and where shared chunks are kept."""
        self._runner, self._prefixes, self._stats = runner, prefix_cache, stats

    def prepare(self, batch: StepBatch) -> Iterator[RowOutcome]:
        """Move rows and compute prompts; yield every sequence whose prompt is whole now, or that failed."""
        yield from self.transfer(batch.transfers)
        failed: Sequence | None = None
        for chunk in batch.prefills:
            if chunk.sequence is not failed:
                outcome = self._advance(chunk)
                failed = outcome.sequence if isinstance(outcome, RowFailed) else failed
                if outcome is not None:
                    yield outcome

    def decode(self, sequences: Many[Sequence]) -> Iterator[RowOutcome]:
        """Append the last token of each of `sequences`, which stand in rows 0, 1, ...; yield what became of them."""
        if sequences:
            yield from self._decode(0, sequences)

    def transfer(self, transfers: Iterable[Transfer]) -> Iterator[RowFailed]:
        """Carry out `transfers` in order; yield sequences whose KV could not be kept."""
        for item in transfers:
            if isinstance(item, Move):
                self._runner.move(item.source, item.target, item.tokens)
            elif isinstance(item, SwapIn):
                self._swap_in(item)
            else:
                yield from self._swap_out(item)

    def _swap_out(self, item: SwapOut) -> Iterator[RowFailed]:
        sequence = item.sequence
        try:
            sequence.swapped_kv = self._runner.save_kv(item.row, 0, sequence.num_computed_tokens)
        except Exception as error:  # noqa: BLE001  # most likely memory; it must not cost the running ones
            yield RowFailed(sequence, error)
            return
        self._stats.count_swap(sequence.swapped_kv.nbytes)

    def _swap_in(self, item: SwapIn) -> None:
        block, item.sequence.swapped_kv = item.sequence.swapped_kv, None
        if block is None:
            raise RuntimeError("a preempted sequence has lost its KV")
        self._runner.load_kv(item.row, 0, block)

    def _advance(self, chunk: PrefillChunk) -> RowOutcome | None:
        """Copy or compute one chunk; return an outcome if the prompt is whole with it, or it failed."""
        start = time.monotonic()
        try:
            copied = self._copy(chunk)
            logits = None if copied else self._compute(chunk)
        except Exception as error:  # noqa: BLE001  # any fault of the runtime ends this sequence, not the engine
            return RowFailed(chunk.sequence, error)
        chunk.sequence.num_computed_tokens = chunk.stop
        chunk.sequence.prefill_s += time.monotonic() - start
        return RowsDone((chunk.sequence,), logits) if logits is not None and chunk.completes else None

    def _copy(self, chunk: PrefillChunk) -> bool:
        """Take the chunk from the cache if it is there; the last one is computed always, for its logits."""
        block = self._prefixes.get(chunk.chain) if chunk.chain and not chunk.completes else None
        if block is None:
            return False
        self._runner.load_kv(chunk.row, chunk.start, block)
        chunk.sequence.cached_tokens += block.tokens
        self._stats.cached_tokens += block.tokens
        return True

    def _compute(self, chunk: PrefillChunk) -> Logits:
        ids = chunk.sequence.prompt_ids[chunk.start : chunk.stop]
        logits = self._runner.prefill(chunk.row, ids, chunk.start)
        self._stats.count_prefill(len(ids))
        if chunk.chain and self._prefixes.wants(chunk.chain[-1]):
            with suppress(MemoryError):  # keeping it is a convenience
                self._prefixes.put(chunk.chain, self._runner.save_kv(chunk.row, chunk.start, chunk.stop))
        return logits

    def _decode(self, first_row: int, sequences: Many[Sequence]) -> Iterator[RowOutcome]:
        try:
            logits = self._runner.decode(
                first_row,
                [sequence.output_ids[-1] for sequence in sequences],
                [sequence.num_computed_tokens for sequence in sequences],
            )
        except Exception as error:  # noqa: BLE001  # as above
            yield from self._bisect(first_row, sequences, error)
            return
        for sequence in sequences:
            sequence.num_computed_tokens += 1
        yield RowsDone(tuple(sequences), logits)

    def _bisect(self, first_row: int, sequences: Many[Sequence], error: Exception) -> Iterator[RowOutcome]:
        """Try both halves again: positions come with each call, so a repeated step writes the same KV entries."""
        middle = len(sequences) // 2
        if middle == 0:
            yield RowFailed(sequences[0], error)
            return
        yield from self._decode(first_row, sequences[:middle])
        yield from self._decode(first_row + middle, sequences[middle:])
