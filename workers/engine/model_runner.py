"""The one seam between the engine and a runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class KvBlock:
    """KV of a stretch of tokens, copied out of a row. What the arrays mean is the runner's own affair."""

    tokens: int
    arrays: tuple[NDArray[Any], ...]

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return sum(array.nbytes for array in self.arrays)


@dataclass(frozen=True, slots=True)
class RowTokens:
    """Tokens to append to `row`, which holds `position` tokens already."""

    row: int
    token_ids: Sequence[int]
    position: int
    wants_logits: bool = True


class ModelRunner(Protocol):
    """Computes steps on rows of a KV cache. Holds no lengths: positions come with each call, so a call may be retried.

    Only the engine thread calls it. Logits returned are valid until the next call.
    """

    @property
    def max_num_seqs(self) -> int:
        """Rows of the KV cache."""
        ...

    @property
    def max_model_len(self) -> int:
        """Tokens a row holds, prompt and output together."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens the model was trained to see."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the width of logits."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a generation."""
        ...

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache."""
        ...

    def execute(self, work: Sequence[RowTokens]) -> Logits:
        """Append tokens to rows in one pass; return the last token's logits [n, vocab] of those that want them.

        A row stands in `work` once. Decode rows and prompt chunks may share a pass; nobody's logits depend on that.
        """
        ...

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of row `source` to row `target`."""
        ...

    def save_kv(self, row: int, start: int, stop: int) -> KvBlock:
        """Return a copy of the KV of tokens `start` to `stop` of `row`."""
        ...

    def load_kv(self, row: int, start: int, block: KvBlock) -> None:
        """Write `block`, saved from the same positions of any row, to `row` from token `start` on, bit for bit."""
        ...

    def warm_up(self) -> None:
        """Run two small generations over all rows, so that the first real step is as fast as the others."""
        ...

    def close(self) -> None:
        """Free the model. May be called more than once."""
        ...
