"""Attention of one layer over all tokens of a step."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from workers.engine.attention import kernels
from workers.engine.attention.kernels import Geometry, Tokens
from workers.engine.kv_cache import KvLayer


class Attention:
    """Runs the compiled kernels, on as many threads as the worker has cores."""

    def __init__(self, threads: int) -> None:
        """Share each layer's work between `threads` threads."""
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, "attention") if threads > 1 else None

    @staticmethod
    def append(tokens: Tokens, geometry: Geometry, kv: KvLayer) -> None:
        """Write keys and values of `tokens` to their rows."""
        kernels.append(tokens, geometry, kv)

    def attend(self, tokens: Tokens, geometry: Geometry, kv: KvLayer, output: NDArray[np.float32]) -> None:
        """Write what each of `tokens` sees, itself included, to `output` [tokens, heads * head_size]."""

        def do(part: int) -> None:
            kernels.attend(tokens, geometry, kv, (part, self._threads), output)

        others = [self._pool.submit(do, part) for part in range(1, self._threads)] if self._pool else []
        do(0)
        for other in others:
            other.result()

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()
