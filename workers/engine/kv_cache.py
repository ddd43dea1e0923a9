"""Slots of keys and values: one row per running sequence, allocated once."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 32  # keys of so many tokens lie together, channel by channel, as the attention kernel reads them

KvDtype = Literal["int8", "float32"]
Arrays = tuple[NDArray[Any], ...]
_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KvShape:
    """What a model needs per token: `layers` pairs of [`kv_heads`, `head_size`]."""

    layers: int
    kv_heads: int
    head_size: int

    def bytes_per_token(self, dtype: KvDtype) -> int:
        """Bytes one token takes in one slot, keys and values of all layers; int8 has a scale per token and head."""
        vector = self.head_size + _SCALE_BYTES if dtype == "int8" else 4 * self.head_size
        return 2 * self.layers * self.kv_heads * vector

    def total_bytes(self, dtype: KvDtype, slots: int, max_len: int) -> int:
        """Bytes of a cache with `slots` rows of `max_len` tokens, whole blocks of them."""
        return slots * _whole_blocks(max_len) * BLOCK_TOKENS * self.bytes_per_token(dtype)


def _whole_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


class KvLayer(NamedTuple):
    """One layer's cache, as compiled code takes it.

    keys [rows, kv_heads, blocks, head_size, 32]; values [rows, kv_heads, blocks * 32, head_size]; both scales
    [rows, kv_heads, blocks * 32], or of no tokens where the cache is float32.
    """

    keys: NDArray[Any]
    key_scales: NDArray[np.float32]
    values: NDArray[Any]
    value_scales: NDArray[np.float32]

    def stretch(self, row: int, first_block: int, last_block: int) -> Arrays:
        """Return views of `row` from `first_block` up to but without `last_block`."""
        tokens = slice(first_block * BLOCK_TOKENS, last_block * BLOCK_TOKENS)
        return (
            self.keys[row, :, first_block:last_block],
            self.key_scales[row, :, tokens],
            self.values[row, :, tokens],
            self.value_scales[row, :, tokens],
        )


class KvCache:
    """Keys and values of all layers, int8 with a scale per token and head, or float32.

    Every page is written at construction: the first touch of a page during a step costs up to four times the step.
    """

    def __init__(self, shape: KvShape, dtype: KvDtype, slots: int, max_len: int) -> None:
        """Allocate and touch `shape.total_bytes(dtype, slots, max_len)` bytes."""
        self.shape, self.dtype, self.slots, self.max_len = shape, dtype, slots, max_len
        self.layers = [self._layer() for _ in range(shape.layers)]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for layer in self.layers for array in layer)

    def _layer(self) -> KvLayer:
        blocks, kv_heads, size = _whole_blocks(self.max_len), self.shape.kv_heads, self.shape.head_size
        tokens = blocks * BLOCK_TOKENS
        element = np.dtype(self.dtype)
        scales = (self.slots, kv_heads, tokens if self.dtype == "int8" else 0)
        return KvLayer(
            keys=np.full((self.slots, kv_heads, blocks, size, BLOCK_TOKENS), 0, element),
            key_scales=np.full(scales, 0, np.float32),
            values=np.full((self.slots, kv_heads, tokens, size), 0, element),
            value_scales=np.full(scales, 0, np.float32),
        )

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of row `source` to row `target`, and what else is in their blocks."""
        for layer in self.layers:
            blocks = _whole_blocks(tokens)
            for to, of in zip(layer.stretch(target, 0, blocks), layer.stretch(source, 0, blocks), strict=True):
                to[...] = of

    def save(self, row: int, start: int, stop: int) -> Arrays:
        """Return a copy of tokens `start` to `stop` of `row`, in whole blocks. `start` is a multiple of 32."""
        first = _first_block(start)
        return tuple(view.copy() for layer in self.layers for view in layer.stretch(row, first, _whole_blocks(stop)))

    def load(self, row: int, start: int, arrays: Arrays) -> None:
        """Write what `save` returned to `row` from token `start`, a multiple of 32, on."""
        first = _first_block(start)
        last = first + arrays[0].shape[1]
        views = (view for layer in self.layers for view in layer.stretch(row, first, last))
        for view, saved in zip(views, arrays, strict=True):
            view[...] = saved


def _first_block(start: int) -> int:
    if start % BLOCK_TOKENS:
        raise ValueError(f"KV is saved and loaded from a multiple of {BLOCK_TOKENS} tokens on, not from {start}")
    return start // BLOCK_TOKENS
