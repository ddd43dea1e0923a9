"""KV of prompt prefixes that several sequences share, so that each is computed once."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workers.engine.prefix_keys import PrefixKey

if TYPE_CHECKING:
    from workers.engine.model_runner import KvBlock

MAX_SIGHTINGS = 16_384


class PrefixCache:
    """Blocks of whole prefill chunks, the least recently used ones given up beyond `max_bytes`. Engine thread only.

    A chunk is kept only once two sequences have asked for it, waiting ones included: the tail of a prompt is its
    own, and copying it would be for nothing. Only prompts are kept. The KV of generated tokens comes out of decode
    steps and differs in its last bits from what a prefill of the same tokens gives, so reuse could change outputs.
    """

    def __init__(self, max_bytes: int, max_sightings: int = MAX_SIGHTINGS) -> None:
        """Start empty; `max_bytes` 0 keeps nothing."""
        self.max_bytes, self.max_sightings = max_bytes, max_sightings
        self.bytes = 0
        self.evictions = 0
        self._blocks: OrderedDict[PrefixKey, KvBlock] = OrderedDict()
        self._sightings: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of blocks kept."""
        return len(self._blocks)

    def __contains__(self, key: PrefixKey) -> bool:
        """Whether the chunk need not be computed."""
        return key in self._blocks

    def note(self, keys: Iterable[PrefixKey]) -> None:
        """Remember that another sequence begins with the chunks `keys`."""
        if not self.max_bytes:
            return
        for key in keys:
            self._sightings[key.digest] = self._sightings.get(key.digest, 0) + 1
            self._sightings.move_to_end(key.digest)
        while len(self._sightings) > self.max_sightings:
            self._sightings.popitem(last=False)

    def is_shared(self, key: PrefixKey) -> bool:
        """Whether more than one sequence has asked for the chunk, so that it is worth keeping."""
        return self._sightings.get(key.digest, 0) > 1

    def wants(self, key: PrefixKey) -> bool:
        """Whether a chunk just computed should be kept."""
        return self.is_shared(key) and key not in self._blocks

    def get(self, chain: Sequence[PrefixKey]) -> "KvBlock | None":
        """Return the block of the last chunk of `chain`, the keys of a prompt from its start."""
        block = self._blocks.get(chain[-1])
        if block is not None:
            self._touch(chain)
        return block

    def put(self, chain: Sequence[PrefixKey], block: "KvBlock") -> None:
        """Keep `block` for the last chunk of `chain`."""
        if chain[-1] in self._blocks:
            return
        self._blocks[chain[-1]] = block
        self.bytes += block.nbytes
        self._touch(chain)
        while self.bytes > self.max_bytes:
            _, evicted = self._blocks.popitem(last=False)
            self.bytes -= evicted.nbytes
            self.evictions += 1

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self._sightings.clear()
        self.bytes = 0

    def _touch(self, chain: Sequence[PrefixKey]) -> None:
        """Make `chain` the most recent, its start last: a chunk is of no use without those before it."""
        for key in reversed(chain):
            if key in self._blocks:
                self._blocks.move_to_end(key)
