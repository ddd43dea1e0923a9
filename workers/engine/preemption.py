"""Who makes room for somebody more urgent."""

from collections.abc import Iterable
from dataclasses import dataclass

from workers.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing before a sequence can be admitted: rows, and tokens of KV memory."""

    rows: int
    tokens: int

    def __bool__(self) -> bool:
        """Whether anything is missing."""
        return self.rows > 0 or self.tokens > 0

    def without(self, sequence: Sequence) -> "Shortage":
        """Return what is missing still once `sequence` is gone."""
        return Shortage(self.rows - 1, self.tokens - sequence.reserved_tokens)


def victims(
    running: Iterable[Sequence], *, priority: int, shortage: Shortage, swap_room: int, max_preemptions: int
) -> list[Sequence]:
    """Return those to preempt so that `shortage` is covered for a sequence of `priority`; nobody if it cannot be.

    Only a strictly lower priority yields, the lowest and among equals the youngest first, and each sequence at most
    `max_preemptions` times: nothing is swapped back and forth for long. A sequence that decodes goes only where its
    KV fits into the `swap_room` left. One still in its prompt is begun anew: fixed chunks give the same KV again.
    """
    if not shortage:
        return []
    chosen = []
    yielding = (item for item in running if item.request.priority > priority and item.preemptions < max_preemptions)
    for sequence in sorted(yielding, key=lambda item: (-item.request.priority, -item.admitted_at, -item.arrival)):
        if sequence.swap_tokens <= swap_room:
            chosen.append(sequence)
            swap_room -= sequence.swap_tokens
            shortage = shortage.without(sequence)
            if not shortage:
                return chosen
    return []
