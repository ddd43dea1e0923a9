"""The largest of many values without sorting them all."""

import numpy as np
from numpy.typing import NDArray


def largest(values: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Return the indices of the `count` largest values, in index order: equal values never depend on the partition."""
    if count >= values.size:
        return np.arange(values.size)
    threshold = np.partition(values, values.size - count)[values.size - count]
    above = np.flatnonzero(values > threshold)
    ties = np.flatnonzero(values == threshold)[: count - above.size]
    return np.sort(np.concatenate((above, ties)))
