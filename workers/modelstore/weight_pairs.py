"""Full bytes that no kernel overflows: int8 weights within ±127, the two of a pair within ±128 together.

Without a dot-product instruction, x86 kernels add two neighbouring products of uint8 and int8 in 16 bits, with
saturation (`vpmaddubsw`): 255 * 127 twice overflows 32767. Weights within ±64 never would, at the cost of a bit; but
only pairs of large weights of one sign overflow, and they are rare. So a column's scale is chosen such that bounding
these costs less than it saves, and the same weights are exact on every processor.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from workers.modelstore.linear_nodes import FloatArray

WEIGHT_RANGE = 127
PAIR_LIMIT = 128  # 255 * 128 < 2 ** 15, and 255 * 127 less something of the other sign as well
_COARSEST = 64  # where no pair can overflow
_STEP = 3
_BOUNDING = 2.0  # what a bounded weight costs beside a rounded one: error feedback mends it worse
_COLUMNS = 4096


def column_scales(weight: FloatArray) -> FloatArray:
    """Return the scales `[outputs]` of a weight `[inputs, outputs]` that lose least by rounding and bounding."""
    parts = [_scales(weight[:, start : start + _COLUMNS]) for start in range(0, weight.shape[1], _COLUMNS)]
    return np.concatenate(parts)


def _scales(weight: FloatArray) -> FloatArray:
    peaks = np.abs(weight).max(axis=0)
    peaks[peaks == 0] = WEIGHT_RANGE
    pairs = weight[: len(weight) // 2 * 2]
    sums = np.abs(pairs[0::2] + pairs[1::2])
    best = np.asarray(peaks / np.float32(_COARSEST), np.float32)
    least = np.full(len(best), np.inf, np.float32)
    for scales in _candidates(peaks):
        bounded = np.maximum(sums - PAIR_LIMIT * scales, 0)
        loss = len(weight) * scales**2 / 12 + _BOUNDING * np.square(bounded).sum(axis=0) / 2
        better = loss < least
        best[better], least[better] = scales[better], loss[better]
    return best


def _candidates(peaks: FloatArray) -> Iterator[FloatArray]:
    for steps in range(_COARSEST, WEIGHT_RANGE + 1, _STEP):
        yield np.asarray(peaks / np.float32(steps), np.float32)


def round_first(values: FloatArray, partners: FloatArray) -> FloatArray:
    """Round the first weights of pairs (in steps); each gives up half of what it and its partner are too large by."""
    sums = values + partners
    excess = np.maximum(np.abs(sums) - PAIR_LIMIT, 0) * np.sign(sums)
    return np.asarray(np.clip(np.rint(values - excess / 2), -WEIGHT_RANGE, WEIGHT_RANGE), np.float32)


def round_second(values: FloatArray, rounded: FloatArray) -> FloatArray:
    """Round the second weights of pairs (in steps) to what the first, already `rounded`, leave room for."""
    lowest = np.maximum(-WEIGHT_RANGE, -PAIR_LIMIT - rounded)
    highest = np.minimum(WEIGHT_RANGE, PAIR_LIMIT - rounded)
    return np.asarray(np.clip(np.rint(values), lowest, highest), np.float32)


def round_pairs(weight: FloatArray, scales: FloatArray) -> NDArray[np.int8]:
    """Round `weight` `[inputs, outputs]` to multiples of `scales` `[outputs]`, every pair by itself."""
    steps = weight / scales
    paired = len(steps) // 2 * 2
    values = np.empty(steps.shape, np.int8)
    first = round_first(steps[0:paired:2], steps[1:paired:2])
    values[0:paired:2], values[1:paired:2] = first, round_second(steps[1:paired:2], first)
    values[paired:] = np.clip(np.rint(steps[paired:]), -WEIGHT_RANGE, WEIGHT_RANGE)
    return values
