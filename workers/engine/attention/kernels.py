"""The compiled attention of a step.

Everything about one query (a token and a head) is computed by the same operations in the same order whatever shares
the call, so outputs depend neither on the step batch nor on how a prompt was cut into chunks.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.engine.attention.microkernel import LANES, product
from workers.engine.attention.vectors import compiled, exponentials, quantise, rotate, widen
from workers.engine.kv_cache import BLOCK_TOKENS, KvLayer

TILE = 4  # queries of a prompt that read keys and values together
_WIDEN_FROM = 8  # queries of one row from which on converting its int8 once is cheaper than at each reading
_ROWS = 3  # of a product: with 32 columns their sums fill the registers of AVX2
_FLOAT_BYTES = 4
_NEAR_TOKENS = 64  # whose values fit the first-level cache

_int8_rows = product(_ROWS, BLOCK_TOKENS, quantised=True)
_int8_row = product(1, BLOCK_TOKENS, quantised=True)
_float_rows = product(_ROWS, BLOCK_TOKENS, quantised=False)
_float_row = product(1, BLOCK_TOKENS, quantised=False)
_int8_few = product(1, LANES, quantised=True)
_float_few = product(1, LANES, quantised=False)


class Tokens(NamedTuple):
    """Tokens of a step: qkv [tokens, (heads + 2 kv_heads) * size], rows and positions [tokens]; rows in one piece."""

    qkv: NDArray[np.float32]
    rows: NDArray[np.int64]
    positions: NDArray[np.int64]


class Geometry(NamedTuple):
    """How a layer attends: angles [positions, rotated / 2], which channels form pairs, the scale of scores."""

    cosines: NDArray[np.float32]
    sines: NDArray[np.float32]
    interleaved: bool
    scale: np.float32


class _Head(NamedTuple):
    """Keys and values of one row and KV head, by address; scales are empty where the cache is float32."""

    keys: int
    values: int
    int8: bool
    key_scales: NDArray[np.float32]
    value_scales: NDArray[np.float32]


class _Scratch(NamedTuple):
    queries: NDArray[np.float32]
    scores: NDArray[np.float32]
    exponents: NDArray[np.int32]
    powers: NDArray[np.float32]
    outputs: NDArray[np.float32]


@compiled
def _multiply(left, right, target, rows, terms, more):
    """Write `target[rows, 32] = left[rows, terms] @ right[terms, 32]`; each is an address and a stride in elements.

    `right` has a third member: whether it is int8. Where `more` is not 0 the product is added to `target`.
    """
    (a, a_stride), (b, b_stride, quantised), (c, c_stride) = left, right, target
    row = 0
    while row < rows:
        if row + _ROWS <= rows:
            if quantised:
                _int8_rows(a, a_stride, b, b_stride, c, c_stride, terms, more)
            else:
                _float_rows(a, a_stride, b, b_stride, c, c_stride, terms, more)
            done = _ROWS
        else:
            if quantised:
                _int8_row(a, a_stride, b, b_stride, c, c_stride, terms, more)
            else:
                _float_row(a, a_stride, b, b_stride, c, c_stride, terms, more)
            done = 1
        row += done
        a += done * a_stride * _FLOAT_BYTES
        c += done * c_stride * _FLOAT_BYTES


@compiled
def _multiply_few(left, right, target, rows, terms, more):
    """Do as `_multiply` for 8 columns: heads whose size is no multiple of 32 have some left."""
    (a, a_stride), (b, b_stride, quantised), (c, c_stride) = left, right, target
    for row in range(rows):
        from_row, to_row = a + row * a_stride * _FLOAT_BYTES, c + row * c_stride * _FLOAT_BYTES
        if quantised:
            _int8_few(from_row, a_stride, b, b_stride, to_row, c_stride, terms, more)
        else:
            _float_few(from_row, a_stride, b, b_stride, to_row, c_stride, terms, more)


@compiled
def _append(qkv, rows, positions, cosines, sines, interleaved, keys, key_scales, values, value_scales):
    kv_heads, size = values.shape[1], values.shape[3]
    first_key = qkv.shape[1] - 2 * kv_heads * size
    key = np.empty(size, np.float32)
    for token in range(rows.size):
        row, position = rows[token], positions[token]
        for head in range(kv_heads):
            start = first_key + head * size
            rotate(qkv[token, start : start + size], cosines[position], sines[position], interleaved, key)
            start += kv_heads * size
            value = qkv[token, start : start + size]
            to_key = keys[row, head, position // BLOCK_TOKENS, :, position % BLOCK_TOKENS]
            to_value = values[row, head, position]
            if key_scales.size:
                key_scales[row, head, position] = quantise(key, to_key)
                value_scales[row, head, position] = quantise(value, to_value)
            else:
                to_key[:] = key
                to_value[:] = value


@compiled
def _weights_of(scores, row, length, longest, head, scratch):
    """Turn the scores of one query into weights of the `length` tokens it sees; those up to `longest` weigh nothing."""
    weights = scores[row, :length]
    share = np.float32(1) / exponentials(weights, head.key_scales, scratch.exponents, scratch.powers)
    if head.value_scales.size:
        for i in range(length):
            weights[i] *= share * head.value_scales[i]
    else:
        for i in range(length):
            weights[i] *= share
    scores[row, length:longest] = 0


@compiled
def _attend_tile(rows, head, first_length, group, scratch):
    """Attend for `rows` prepared queries of consecutive tokens, the first of which sees `first_length` tokens."""
    queries, scores, outputs = scratch.queries, scratch.scores, scratch.outputs
    size, stride, element = queries.shape[1], scores.shape[1], 1 if head.int8 else _FLOAT_BYTES
    longest = first_length + rows // group - 1
    for block in range(-(-longest // BLOCK_TOKENS)):
        right = (head.keys + block * BLOCK_TOKENS * size * element, BLOCK_TOKENS, head.int8)
        target = (scores.ctypes.data + block * BLOCK_TOKENS * _FLOAT_BYTES, stride)
        _multiply((queries.ctypes.data, size), right, target, rows, size, 0)
    for row in range(rows):
        _weights_of(scores, row, first_length + row // group, longest, head, scratch)
    for first in range(0, longest, _NEAR_TOKENS):  # values are read once per piece, while they are near
        left, terms = (scores.ctypes.data + first * _FLOAT_BYTES, stride), min(_NEAR_TOKENS, longest - first)
        values, column = head.values + first * size * element, 0
        while column < size:
            right = (values + column * element, size, head.int8)
            target = (outputs.ctypes.data + column * _FLOAT_BYTES, size)
            if column + BLOCK_TOKENS <= size:
                _multiply(left, right, target, rows, terms, first)
                column += BLOCK_TOKENS
            else:
                _multiply_few(left, right, target, rows, terms, first)
                column += LANES


@compiled
def _attend(  # noqa: C901  # one function, because every level of calls is compiled anew into the one above
    qkv, rows, positions, cosines, sines, interleaved, scale, keys, key_scales, values, value_scales, share, output
):
    part, parts = share
    kv_heads, room, size = values.shape[1], values.shape[2], values.shape[3]
    group = output.shape[1] // size // kv_heads
    exponents = np.empty(room, np.int32)
    queries, outputs = np.empty((TILE * group, size), np.float32), np.empty((TILE * group, size), np.float32)
    scores = np.empty((TILE * group, room), np.float32)
    scratch = _Scratch(queries, scores, exponents, exponents.view(np.float32), outputs)
    wide_keys, wide_values = np.empty((0, size, BLOCK_TOKENS), np.float32), np.empty((0, size), np.float32)
    start = tile = 0
    while start < rows.size:
        row, stop = rows[start], start + 1
        while stop < rows.size and rows[stop] == row:
            stop += 1
        blocks = -(-(positions[stop - 1] + 1) // BLOCK_TOKENS)
        widened = key_scales.size > 0 and stop - start >= _WIDEN_FROM
        if widened and len(wide_keys) < blocks:
            wide_keys = np.empty((blocks, size, BLOCK_TOKENS), np.float32)
            wide_values = np.empty((blocks * BLOCK_TOKENS, size), np.float32)
        for index in range(kv_heads):
            key_address, value_address = keys[row, index].ctypes.data, values[row, index].ctypes.data
            if widened:
                widen(keys[row, index, :blocks], wide_keys[:blocks])
                widen(values[row, index, : blocks * BLOCK_TOKENS], wide_values[: blocks * BLOCK_TOKENS])
                key_address, value_address = wide_keys.ctypes.data, wide_values.ctypes.data
            int8 = key_scales.size > 0 and not widened
            head = _Head(key_address, value_address, int8, key_scales[row, index], value_scales[row, index])
            for first in range(start, stop, TILE):
                tile += 1
                if tile % parts != part:
                    continue
                count = min(TILE, stop - first)
                for i in range(count * group):
                    token, at = first + i // group, (index * group + i % group) * size
                    position = positions[token]
                    source = qkv[token, at : at + size]
                    rotate(source, cosines[position], sines[position], interleaved, queries[i])
                    for channel in range(size):
                        queries[i, channel] *= scale
                _attend_tile(count * group, head, positions[first] + 1, group, scratch)
                for i in range(count * group):
                    token, at = first + i // group, (index * group + i % group) * size
                    output[token, at : at + size] = outputs[i]
        start = stop


# Arrays cross into compiled code ten times faster one by one than inside a tuple.


def append(tokens: Tokens, geometry: Geometry, kv: KvLayer) -> None:
    """Write the keys (rotated) and values of `tokens` to their rows."""
    _append(*tokens, geometry.cosines, geometry.sines, geometry.interleaved, *kv)


def attend(
    tokens: Tokens, geometry: Geometry, kv: KvLayer, share: tuple[int, int], output: NDArray[np.float32]
) -> None:
    """Write attention [tokens, heads * size] of every token to its row's keys up to its own position.

    `append` must have run. Of the `share[1]` calls that divide the work each does part `share[0]`.
    """
    _attend(*tokens, *geometry, *kv, share, output)
