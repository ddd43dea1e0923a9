"""The work of one step, as the scheduler plans it."""

from dataclasses import dataclass

from workers.engine.prefix_keys import PrefixKey
from workers.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Prompt tokens `start` to `stop` of a sequence, for its row.

    `chain` names a whole chunk: its key after those of the chunks before it. It is empty for a prompt's shorter tail.
    """

    sequence: Sequence
    row: int
    start: int
    stop: int
    chain: tuple[PrefixKey, ...] = ()

    @property
    def completes(self) -> bool:
        """Whether the prompt is whole after this chunk, so that its logits give the first token."""
        return self.stop == len(self.sequence.prompt_ids)


@dataclass(frozen=True, slots=True)
class Move:
    """The first `tokens` tokens of KV row `source` go to row `target`."""

    source: int
    target: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SwapOut:
    """The KV in `row` of a preempted sequence goes aside."""

    sequence: Sequence
    row: int


@dataclass(frozen=True, slots=True)
class SwapIn:
    """The KV of a preempted sequence returns, to `row`."""

    sequence: Sequence
    row: int


Transfer = Move | SwapOut | SwapIn


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What a step does besides decoding: transfers between rows, then prompt chunks, both in order."""

    transfers: tuple[Transfer, ...]
    prefills: tuple[PrefillChunk, ...]
