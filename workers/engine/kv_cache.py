"""Slots of keys and values: one row per running sequence, allocated once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class KvShape:
    """What a model needs per token: `layers` pairs of [`kv_heads`, `head_size`] float32."""

    layers: int
    kv_heads: int
    head_size: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes one token takes in one slot, keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * FLOAT_BYTES

    def total_bytes(self, slots: int, max_len: int) -> int:
        """Bytes of a cache with `slots` rows of `max_len` tokens."""
        return slots * max_len * self.bytes_per_token


class KvCache:
    """Keys and values [slots, kv_heads, max_len, head_size], float32, per layer.

    Every page is written at construction: the first touch of a page during a step costs up to four times the step.
    """

    def __init__(self, shape: KvShape, slots: int, max_len: int) -> None:
        """Allocate and touch `shape.total_bytes(slots, max_len)` bytes."""
        self.shape, self.slots, self.max_len = shape, slots, max_len
        full = (slots, shape.kv_heads, max_len, shape.head_size)
        self.keys: list[NDArray[np.float32]] = [np.full(full, 0, np.float32) for _ in range(shape.layers)]
        self.values: list[NDArray[np.float32]] = [np.full(full, 0, np.float32) for _ in range(shape.layers)]

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of row `source` to row `target`."""
        for layer in (*self.keys, *self.values):
            layer[target, :, :tokens] = layer[source, :, :tokens]

    def save(self, row: int, start: int, stop: int) -> tuple[NDArray[np.float32], ...]:
        """Return a copy of tokens `start` to `stop` of `row`: [kv_heads, tokens, head_size] of every layer."""
        return tuple(layer[row, :, start:stop].copy() for layer in (*self.keys, *self.values))

    def load(self, row: int, start: int, arrays: tuple[NDArray[np.float32], ...]) -> None:
        """Write what `save` returned to `row` from token `start` on."""
        for layer, saved in zip((*self.keys, *self.values), arrays, strict=True):
            layer[row, :, start : start + saved.shape[1]] = saved
