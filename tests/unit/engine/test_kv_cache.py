import numpy as np
import pytest
from numpy.typing import NDArray

from workers.engine.kv_cache import KvCache, KvDtype, KvShape

SHAPE = KvShape(layers=2, kv_heads=3, head_size=8)
DTYPES: list[KvDtype] = ["int8", "float32"]


def filled(dtype: KvDtype, slots: int = 3, max_len: int = 100) -> KvCache:
    """A cache in which every number tells where it stands, as far as its type can."""
    cache = KvCache(SHAPE, dtype, slots, max_len)
    for layer in cache.layers:
        for array in layer:
            array[...] = (np.arange(array.size) % 119).reshape(array.shape)
    return cache


def rows(cache: KvCache, row: int, tokens: slice) -> list[NDArray[np.generic]]:
    """What a cache says about `tokens` of `row`: keys [kv_heads, tokens, head_size] and so on."""
    found: list[NDArray[np.generic]] = []
    for layer in cache.layers:
        keys = layer.keys[row].transpose(0, 1, 3, 2).reshape(SHAPE.kv_heads, -1, SHAPE.head_size)
        found += [keys[:, tokens], layer.values[row][:, tokens]]
        if cache.dtype == "int8":
            found += [layer.key_scales[row][:, tokens], layer.value_scales[row][:, tokens]]
    return found


def equal(first: list[NDArray[np.generic]], second: list[NDArray[np.generic]]) -> bool:
    return all((a == b).all() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_len", [1, 31, 32, 100])
def test_the_estimate_is_what_is_allocated(dtype: KvDtype, max_len: int) -> None:
    assert KvCache(SHAPE, dtype, 5, max_len).nbytes == SHAPE.total_bytes(dtype, 5, max_len)


def test_int8_takes_less_than_half_even_with_scales_of_small_heads() -> None:
    assert SHAPE.bytes_per_token("int8") * 2 < SHAPE.bytes_per_token("float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 100])
def test_a_move_copies_the_tokens_of_every_layer_and_leaves_other_rows(dtype: KvDtype, tokens: int) -> None:
    cache, before = filled(dtype), filled(dtype)
    cache.move(2, 0, tokens)
    assert equal(rows(cache, 0, slice(tokens)), rows(before, 2, slice(tokens)))
    for row in (1, 2):
        assert equal(rows(cache, row, slice(None)), rows(before, row, slice(None)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 33), (32, 64), (64, 100)])
def test_saved_tokens_return_to_any_row_and_touch_nothing_before_them(dtype: KvDtype, start: int, stop: int) -> None:
    cache, before = filled(dtype), filled(dtype)
    saved = cache.save(1, start, stop)
    for layer in cache.layers:
        for array in layer:
            array[1] = 0
    cache.load(2, start, saved)
    assert equal(rows(cache, 2, slice(start, stop)), rows(before, 1, slice(start, stop)))
    assert equal(rows(cache, 2, slice(start)), rows(before, 2, slice(start)))
    assert equal(rows(cache, 0, slice(None)), rows(before, 0, slice(None)))


def test_a_stretch_begins_with_a_block() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        KvCache(SHAPE, "int8", 1, 64).save(0, 5, 9)
