"""Runs a step on the runner, and finds the one sequence that makes it fail."""

import time
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many
from contextlib import suppress
from dataclasses import dataclass

from workers.engine.engine_stats import EngineStats
from workers.engine.model_runner import Logits, ModelRunner, RowTokens
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


@dataclass(slots=True)
class _Piece:
    """Tokens of one sequence for one pass: prompt chunks that follow each other, or the token it generated last."""

    sequence: Sequence
    row: int
    start: int
    chunks: list[PrefillChunk]

    @property
    def stop(self) -> int:
        return self.chunks[-1].stop if self.chunks else self.start + 1

    @property
    def wants_logits(self) -> bool:
        return not self.chunks or self.chunks[-1].completes

    @property
    def work(self) -> RowTokens:
        tokens = self.sequence.prompt_ids[self.start : self.stop] if self.chunks else self.sequence.output_ids[-1:]
        return RowTokens(self.row, tokens, self.start, self.wants_logits)


class StepExecutor:
    """Computes the chunks and the decode rows of a step, in one pass if it can. A failing sequence fails alone."""

    def __init__(self, runner: ModelRunner, prefix_cache: PrefixCache, stats: EngineStats) -> None:
        """Take the runner whose KV rows the scheduler lays out, and where shared chunks are kept."""
        self._runner, self._prefixes, self._stats = runner, prefix_cache, stats

    def run(self, batch: StepBatch, decodes: Many[Sequence]) -> Iterator[RowOutcome]:
        """Move rows, compute prompts and append the last token of `decodes`, which stand in rows 0, 1, ...

        Yields every sequence that has logits now, or that failed.
        """
        yield from self.transfer(batch.transfers)
        pieces = [_Piece(sequence, row, sequence.num_computed_tokens, []) for row, sequence in enumerate(decodes)]
        failed: set[Sequence] = set()
        for chunk in batch.prefills:
            if any(self._waits_for(chunk, piece) for piece in pieces):
                yield from self._pass(pieces, failed)
                pieces = []
            if chunk.sequence not in failed:
                yield from self._add(chunk, pieces, failed)
        yield from self._pass(pieces, failed)

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

    def _waits_for(self, chunk: PrefillChunk, piece: _Piece) -> bool:
        """Whether `chunk` can be copied once the pass in preparation has computed `piece`.

        Either the chunks before it are still to be computed, or the same chunk of another sequence is.
        """
        if not chunk.chain or chunk.completes:
            return False
        key = chunk.chain[-1]
        if piece.sequence is chunk.sequence:
            return key in self._prefixes
        return self._prefixes.wants(key) and any(other.chain and other.chain[-1] == key for other in piece.chunks)

    def _add(self, chunk: PrefillChunk, pieces: list[_Piece], failed: set[Sequence]) -> Iterator[RowFailed]:
        """Copy the chunk from the cache, or put it into the pass in preparation."""
        if pieces and pieces[-1].sequence is chunk.sequence:  # what comes before it is computed only with this pass
            pieces[-1].chunks.append(chunk)
            return
        try:
            if not self._copy(chunk):
                pieces.append(_Piece(chunk.sequence, chunk.row, chunk.start, [chunk]))
        except Exception as error:  # noqa: BLE001  # it ends this sequence, not the engine
            failed.add(chunk.sequence)
            yield RowFailed(chunk.sequence, error)

    def _copy(self, chunk: PrefillChunk) -> bool:
        """Take the chunk from the cache if it is there; the last one is computed always, for its logits."""
        block = self._prefixes.get(chunk.chain) if chunk.chain and not chunk.completes else None
        if block is None:
            return False
        start = time.monotonic()
        self._runner.load_kv(chunk.row, chunk.start, block)
        chunk.sequence.num_computed_tokens = chunk.stop
        chunk.sequence.cached_tokens += block.tokens
        chunk.sequence.prefill_s += time.monotonic() - start
        self._stats.cached_tokens += block.tokens
        return True

    def _pass(self, pieces: Many[_Piece], failed: set[Sequence]) -> Iterator[RowOutcome]:
        """Compute `pieces` together; if that fails, halves of them: positions come along, so nothing is done twice."""
        if not pieces:
            return
        start = time.monotonic()
        try:
            logits = self._runner.execute([piece.work for piece in pieces])
        except Exception as error:  # noqa: BLE001  # any fault of the runtime ends a sequence, not the engine
            middle = len(pieces) // 2
            if middle:
                yield from self._pass(pieces[:middle], failed)
                yield from self._pass(pieces[middle:], failed)
            else:
                failed.add(pieces[0].sequence)
                yield RowFailed(pieces[0].sequence, error)
            return
        self._account(pieces, time.monotonic() - start)
        ready = tuple(piece.sequence for piece in pieces if piece.wants_logits)
        if ready:
            yield RowsDone(ready, logits)

    def _account(self, pieces: Many[_Piece], seconds: float) -> None:
        """Note what was computed, and keep the chunks that others share. Time is shared out by tokens."""
        tokens = sum(piece.stop - piece.start for piece in pieces)
        for piece in pieces:
            piece.sequence.num_computed_tokens = piece.stop
            for chunk in piece.chunks:
                size = chunk.stop - chunk.start
                piece.sequence.prefill_s += seconds * size / tokens
                self._stats.count_prefill(size)
                if chunk.chain and self._prefixes.wants(chunk.chain[-1]):
                    with suppress(MemoryError):  # keeping it is a convenience
                        self._prefixes.put(chunk.chain, self._runner.save_kv(chunk.row, chunk.start, chunk.stop))
