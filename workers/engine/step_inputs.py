"""The small inputs of a step, in buffers that live as long as the runner."""

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


class StepInputs:
    """Fills token ids, attention mask and position ids in place: steps allocate nothing."""

    def __init__(self, rows: int, max_len: int) -> None:
        """Make room for `rows` x `max_len` tokens."""
        self._ids: Int64Array = np.zeros(rows * max_len, np.int64)
        self._mask: Int64Array = np.zeros(rows * max_len, np.int64)
        self._positions: Int64Array = np.zeros(rows * max_len, np.int64)
        self._steps: Int64Array = np.arange(max_len, dtype=np.int64)

    def token_ids(self, ids: Int64Array) -> Int64Array:
        """Return `ids` [rows, tokens] in the buffer."""
        return self._fill(self._ids, ids)

    def attention_mask(self, lengths: Int64Array) -> Int64Array:
        """Return the mask [rows, longest]: ones up to each row's `lengths`, this step's tokens included."""
        return self._fill(self._mask, self._steps[: lengths.max()] < lengths[:, None])

    def position_ids(self, starts: Int64Array, tokens: int) -> Int64Array:
        """Return positions [rows, tokens] counting from each row's `starts`."""
        return self._fill(self._positions, starts[:, None] + self._steps[:tokens])

    @staticmethod
    def _fill(buffer: Int64Array, values: NDArray[np.generic]) -> Int64Array:
        view = buffer[: values.size].reshape(values.shape)
        view[...] = values
        return view
