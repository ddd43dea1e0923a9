"""Counters of an engine since it started."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workers.engine.output_processor import Finished
from workers.engine.sequence import GenerationOutput


@dataclass(slots=True)
class EngineStats:
    """What has been computed. A step computes rows that decode and rows whose prompt it takes further.

    `prompt_tokens` were computed, `cached_tokens` of prompts were copied instead. A step is *busy* when somebody
    waited for a row meanwhile. `on_genai` is 1 if onnxruntime-genai serves plain jobs too; `genai_bytes` is the
    memory of the genai child.
    """

    max_num_seqs: int
    running: int = 0
    waiting: int = 0
    steps: int = 0
    computed_rows: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    busy_steps: int = 0
    busy_rows: int = 0
    prefill_chunks: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    failed: int = 0
    preemptions: int = 0
    swapped_bytes: int = 0
    prefix_blocks: int = 0
    prefix_bytes: int = 0
    prefix_evictions: int = 0
    on_genai: int = 0
    genai_bytes: int = 0

    @property
    def occupancy(self) -> float:
        """Mean share of the slots that were computed in a step."""
        return self.computed_rows / (self.steps * self.max_num_seqs) if self.steps else 0.0

    @property
    def busy_occupancy(self) -> float:
        """The same over busy steps: what the scheduler made of the slots while there was work for all of them."""
        return self.busy_rows / (self.busy_steps * self.max_num_seqs) if self.busy_steps else 0.0

    def count_prefill(self, tokens: int) -> None:
        """Count one computed prompt chunk."""
        self.prefill_chunks += 1
        self.prompt_tokens += tokens

    def count_swap(self, nbytes: int) -> None:
        """Count a sequence that was preempted while it decoded."""
        self.preemptions += 1
        self.swapped_bytes += nbytes

    def count_step(self, decodes: int, prompts: int = 0, *, busy: bool) -> None:
        """Count a step of `decodes` decoding rows and `prompts` others; `busy` if more sequences waited."""
        self.steps += 1
        self.computed_rows += decodes + prompts
        self.decode_steps += bool(decodes)
        self.decode_rows += decodes
        if busy:
            self.busy_steps += 1
            self.busy_rows += decodes + prompts

    def count_finished(self, finished: Sequence[Finished]) -> None:
        """Count those that leave."""
        succeeded = sum(isinstance(item.outcome, GenerationOutput) for item in finished)
        self.finished += succeeded
        self.failed += len(finished) - succeeded

    def snapshot(self, **present: int) -> "EngineStats":
        """Return a copy with the `present` figures: queue lengths, what the prefix cache holds."""
        return replace(self, **present)
