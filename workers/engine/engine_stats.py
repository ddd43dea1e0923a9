"""Counters of an engine since it started."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workers.engine.output_processor import Finished
from workers.engine.scheduler import StepBatch
from workers.engine.sequence import GenerationOutput


@dataclass(slots=True)
class EngineStats:
    """What has been computed. A step is one pass of the engine; its decode pass computes `decodes` rows at once."""

    max_num_seqs: int
    running: int = 0
    waiting: int = 0
    steps: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    prefill_chunks: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    failed: int = 0

    @property
    def occupancy(self) -> float:
        """Mean share of the slots that decoded, over the steps that decoded."""
        return self.decode_rows / (self.decode_steps * self.max_num_seqs) if self.decode_steps else 0.0

    def count_step(self, batch: StepBatch, finished: Sequence[Finished]) -> None:
        """Count one step and those that left with it."""
        self.steps += 1
        self.decode_steps += bool(batch.decodes)
        self.decode_rows += len(batch.decodes)
        self.prefill_chunks += len(batch.prefills)
        self.prompt_tokens += sum(chunk.stop - chunk.start for chunk in batch.prefills)
        self.generated_tokens += len(batch.decodes) + sum(chunk.completes for chunk in batch.prefills)
        succeeded = sum(isinstance(item.outcome, GenerationOutput) for item in finished)
        self.finished += succeeded
        self.failed += len(finished) - succeeded

    def snapshot(self, *, running: int, waiting: int) -> "EngineStats":
        """Return a copy with the present queue lengths."""
        return replace(self, running=running, waiting=waiting)
