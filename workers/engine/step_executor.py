"""Runs a step on the runner, and finds the one sequence that makes it fail."""

import time
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

from workers.engine.model_runner import Logits, ModelRunner
from workers.engine.scheduler import PrefillChunk, StepBatch
from workers.engine.sequence import Sequence


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

    def __init__(self, runner: ModelRunner) -> None:
        """Take the runner whose KV rows the scheduler lays out."""
        self._runner = runner

    def run(self, batch: StepBatch) -> Iterator[RowOutcome]:
        """Yield what became of every sequence with logits or a failure in this step."""
        if batch.decodes:
            yield from self._decode(0, batch.decodes)
        failed: Sequence | None = None
        for chunk in batch.prefills:
            if chunk.sequence is not failed:
                outcome = self._prefill(chunk)
                failed = outcome.sequence if isinstance(outcome, RowFailed) else failed
                if isinstance(outcome, RowFailed) or chunk.completes:
                    yield outcome

    def _prefill(self, chunk: PrefillChunk) -> RowOutcome:
        sequence, start = chunk.sequence, time.monotonic()
        try:
            logits = self._runner.prefill(chunk.row, sequence.prompt_ids[chunk.start : chunk.stop], chunk.start)
        except Exception as error:  # noqa: BLE001  # any fault of the runtime ends this sequence, not the engine
            return RowFailed(sequence, error)
        sequence.num_computed_tokens = chunk.stop
        sequence.prefill_s += time.monotonic() - start
        return RowsDone((sequence,), logits)

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
