"""The compiled attention against the textbook, and against itself cut another way."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from workers.engine.attention.attention import Attention
from workers.engine.attention.kernels import Geometry, Tokens
from workers.engine.kv_cache import KvCache, KvDtype, KvShape

Array = NDArray[np.float64]
POSITIONS, ROWS = 96, 3
KINDS = [(3, 1, 8, False), (4, 2, 40, False), (9, 3, 64, False), (4, 4, 32, True)]


class Model:
    """Random tokens of several rows, and what attention must make of them."""

    def __init__(self, heads: int, kv_heads: int, size: int, *, interleaved: bool, rotated: int | None = None) -> None:
        random = np.random.default_rng(heads * size)
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        angles = random.normal(size=(POSITIONS, (size if rotated is None else rotated) // 2))
        self.geometry = Geometry(
            np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), interleaved, np.float32(size**-0.5)
        )
        self.qkv = random.normal(size=(ROWS, POSITIONS, (heads + 2 * kv_heads) * size)).astype(np.float32)

    def cache(self, dtype: KvDtype) -> KvCache:
        return KvCache(KvShape(1, self.kv_heads, self.size), dtype, ROWS, POSITIONS)

    def run(self, cache: KvCache, pieces: list[tuple[int, int, int]], threads: int = 1) -> NDArray[np.float32]:
        """Attend for `pieces` (row, start, stop) in one call."""
        rows = np.concatenate([np.full(stop - start, row) for row, start, stop in pieces])
        positions = np.concatenate([np.arange(start, stop) for _, start, stop in pieces])
        tokens = Tokens(np.ascontiguousarray(self.qkv[rows, positions]), rows, positions)
        output = np.full((len(rows), self.heads * self.size), np.nan, np.float32)
        attention = Attention(threads)
        attention.append(tokens, self.geometry, cache.layers[0])
        attention.attend(tokens, self.geometry, cache.layers[0], output)
        attention.close()
        return output

    def expected(self, row: int, stop: int) -> Array:
        """Return what the tokens of `row` up to `stop` see, [stop, heads * size], in float64."""
        heads = self.qkv[row, :stop].astype(np.float64).reshape(stop, -1, self.size)
        q, k, v = np.split(heads, [self.heads, self.heads + self.kv_heads], axis=1)
        group = self.heads // self.kv_heads
        q, k, v = self._rotated(q), np.repeat(self._rotated(k), group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) * float(self.geometry.scale)
        scores[:, np.triu(np.ones((stop, stop), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v).reshape(stop, -1)

    def _rotated(self, heads: Array) -> Array:
        cosines, sines, half = self.geometry.cosines, self.geometry.sines, self.geometry.cosines.shape[1]
        pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if self.geometry.interleaved else None
        first, second = pairs or (slice(half), slice(half, 2 * half))
        c, s = cosines[: len(heads), None], sines[: len(heads), None]
        result = heads.copy()
        result[..., first] = heads[..., first] * c - heads[..., second] * s
        result[..., second] = heads[..., second] * c + heads[..., first] * s
        return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("int8", 0.02)])
def test_it_computes_attention(kind: tuple[int, int, int, bool], dtype: KvDtype, tolerance: float) -> None:
    heads, kv_heads, size, interleaved = kind
    model = Model(heads, kv_heads, size, interleaved=interleaved)
    output = model.run(model.cache(dtype), [(0, 0, 70), (2, 0, 5)])
    np.testing.assert_allclose(output, np.concatenate([model.expected(0, 70), model.expected(2, 5)]), atol=tolerance)


def test_channels_beyond_the_rotated_ones_pass() -> None:
    model = Model(4, 2, 32, interleaved=False, rotated=16)
    np.testing.assert_allclose(model.run(model.cache("float32"), [(1, 0, 40)]), model.expected(1, 40), atol=1e-5)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_work_without_changing_it(threads: int) -> None:
    model = Model(9, 3, 64, interleaved=False)
    pieces = [(0, 0, 50), (1, 0, 3), (2, 0, 1)]
    assert (model.run(model.cache("int8"), pieces, threads) == model.run(model.cache("int8"), pieces)).all()


@settings(max_examples=60, deadline=None)
@given(cuts=st.sets(st.integers(1, 79)), other=st.integers(0, 40), dtype=st.sampled_from(["int8", "float32"]))
def test_bits_depend_neither_on_the_cut_nor_on_the_company(cuts: set[int], other: int, dtype: KvDtype) -> None:
    model = Model(6, 2, 32, interleaved=False)
    whole = model.run(model.cache(dtype), [(0, 0, 80)])
    cache = model.cache(dtype)
    parts = []
    for start, stop in itertools.pairwise([0, *sorted(cuts), 80]):
        company = [(1, 0, other)] if other else []
        parts.append(model.run(cache, [*company, (0, start, stop)])[other:])
    assert (np.concatenate(parts) == whole).all()


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_nan_stays_in_its_row(dtype: KvDtype) -> None:
    model = Model(6, 2, 32, interleaved=False)
    clean = model.run(model.cache(dtype), [(0, 0, 40), (1, 0, 40)])
    model.qkv[1, 7] = np.nan
    broken = model.run(model.cache(dtype), [(0, 0, 40), (1, 0, 40)])
    assert (broken[:40] == clean[:40]).all()
    assert np.isnan(broken[40 + 7]).all()


def test_far_apart_scores_neither_overflow_nor_vanish() -> None:
    model = Model(2, 1, 8, interleaved=False)
    model.qkv *= 100
    output = model.run(model.cache("float32"), [(0, 0, 60)])
    assert np.isfinite(output).all()
    np.testing.assert_allclose(output, model.expected(0, 60), atol=1e-2)
