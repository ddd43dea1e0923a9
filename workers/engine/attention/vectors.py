"""Compiled loops over single vectors: rotary embedding, int8 rounding, exponentials.

numba infers the types of compiled functions, so they carry none. Floating-point sums may be reordered into vectors;
NaN keeps its meaning, so that a broken sequence is noticed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}


def compiled(function: Callable[..., Any]) -> Any:  # noqa: ANN401  # numba ships no types
    """Compile `function` at its first call, kept on disk where anything can be written."""
    try:
        return njit(**_OPTIONS, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache takes files
        return njit(**_OPTIONS)(function)


_SMALLEST_PEAK = np.float32(1e-12)
_INT8_PEAK = np.float32(127)
_HALF = np.float32(0.5)
# exp(x) = 2^n * p(r), Cephes' expf by Moshier (1992), within 1.5 units in the last place.
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504088896341), np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_LOWEST = np.float32(-87)
_EXPONENT_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


@compiled
def rotate(source, cosines, sines, interleaved, target):
    """Turn the first `2 * len(cosines)` channels of `source` [size] by their angles; the others pass."""
    half = cosines.size
    if interleaved:
        for i in range(half):
            even, odd = source[2 * i], source[2 * i + 1]
            target[2 * i] = even * cosines[i] - odd * sines[i]
            target[2 * i + 1] = odd * cosines[i] + even * sines[i]
    else:
        for i in range(half):
            first, second = source[i], source[i + half]
            target[i] = first * cosines[i] - second * sines[i]
            target[i + half] = second * cosines[i] + first * sines[i]
    for i in range(2 * half, target.size):
        target[i] = source[i]


@compiled
def quantise(source, target):
    """Write `source` [size] as int8 to `target`; return what one step is worth."""
    peak = _SMALLEST_PEAK
    for value in source:
        peak = max(peak, abs(value))
    scale = peak / _INT8_PEAK
    for i in range(source.size):
        value = source[i] / scale
        target[i] = np.int8(value + _HALF if value >= 0 else value - _HALF)
    return scale


@compiled
def exponentials(scores, scales, exponents, powers):
    """Multiply `scores` by `scales`, where there are any, replace them by exp(score - max) and return their sum.

    `exponents` is int32 scratch of at least that size, `powers` the same memory seen as float32.
    """
    if scales.size:
        for i in range(scores.size):
            scores[i] *= scales[i]
    peak = scores[0]
    for score in scores:
        peak = max(peak, score)
    for i in range(scores.size):
        x = scores[i] - peak
        x = _LOWEST if x < _LOWEST else x  # noqa: FURB136  # max() would lose NaN
        n = np.int32(x * _LOG2_E - _HALF)
        r = x - np.float32(n) * _LN2_HIGH
        r = r - np.float32(n) * _LN2_LOW
        p = ((((_P0 * r + _P1) * r + _P2) * r + _P3) * r + _P4) * r + _P5
        scores[i] = p * r * r + r + np.float32(1)
        exponents[i] = np.int32(np.int32(n + _EXPONENT_BIAS) << _MANTISSA_BITS)
    total = np.float32(0)
    for i in range(scores.size):
        scores[i] *= powers[i]
        total += scores[i]
    return total


@compiled
def widen(source, target):
    """Write contiguous int8 `source` as float32 to `target`, an array of the same shape."""
    narrow, wide = source.reshape(-1), target.reshape(-1)
    for i in range(narrow.size):
        wide[i] = np.float32(narrow[i])
