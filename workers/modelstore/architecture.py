"""The shape of a decoder, whatever file it came from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Architecture:
    """Sizes and constants of a llama-like decoder. Lengths in tokens, sizes in elements."""

    name: str
    layers: int
    hidden_size: int
    feed_forward_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    context_length: int
    norm_epsilon: float
    rope_theta: float

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of float32 keys and values one token takes in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * np.dtype(np.float32).itemsize

    def rotary_caches(self, divisors: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Return cosines and sines, each `[context_length, head_size / 2]`.

        `divisors` `[head_size / 2]` stretch each frequency as Llama 3.1's `rope_freqs` do.
        """
        frequencies = self.rope_theta ** -(np.arange(0, self.head_size, 2, dtype=np.float64) / self.head_size)
        angles = np.outer(np.arange(self.context_length), frequencies / (1.0 if divisors is None else divisors))
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
