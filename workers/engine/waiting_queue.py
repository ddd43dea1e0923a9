"""Who waits for a row, in the order of urgency, with company for shared prefixes."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import takewhile

from workers.engine.sequence import Sequence

SAME_DEADLINE_S = 1.0

_Entry = tuple[int, float, int, Sequence]


def _entry(sequence: Sequence) -> _Entry:
    return (*sequence.urgency, sequence.arrival, sequence)


class WaitingQueue:
    """Sorted by priority, then deadline, then arrival; `arrival` is unique, so sequences are never compared.

    `choose` may pass over the head for a sequence that finds more of its prompt computed already, so that those with
    one prefix run together while it is in the cache. It looks at `window` sequences of the head's priority and
    deadline, and passes over the same head at most `window` times: whoever waits gets ahead.
    """

    def __init__(self, window: int) -> None:
        """Start empty."""
        self.window = window
        self._entries: list[_Entry] = []
        self._passed_over = 0
        self._head: Sequence | None = None

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        """Iterate in order of urgency."""
        return (entry[-1] for entry in self._entries)

    def add(self, sequence: Sequence) -> None:
        """Queue `sequence` at its place."""
        insort(self._entries, _entry(sequence))

    def discard(self, sequence: Sequence) -> None:
        """Take `sequence` out if it waits."""
        index = bisect_left(self._entries, _entry(sequence)[:-1])
        if index < len(self._entries) and self._entries[index][-1] is sequence:
            del self._entries[index]
        if self._head is sequence:
            self._head = None

    def choose(self, reusable: Callable[[Sequence], int]) -> Sequence:
        """Return whom to admit next; `reusable` counts what a sequence need not compute."""
        head = self._entries[0][-1]
        if head is not self._head:
            self._head, self._passed_over = head, 0
        if self._passed_over >= self.window:
            return head
        return max(self._like(head), key=reusable)

    def take(self, sequence: Sequence) -> None:
        """Take out a sequence that is admitted."""
        self._passed_over += sequence is not self._head
        self.discard(sequence)

    def _like(self, head: Sequence) -> list[Sequence]:
        """Return the first sequences as urgent as `head`, itself included."""
        priority, deadline = head.urgency
        latest = deadline + SAME_DEADLINE_S
        like = takewhile(lambda entry: entry[0] == priority and entry[1] <= latest, self._entries[: self.window])
        return [entry[-1] for entry in like]
