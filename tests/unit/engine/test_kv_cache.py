import numpy as np

from workers.engine.kv_cache import KvCache, KvShape
from workers.engine.step_inputs import StepInputs

SHAPE = KvShape(layers=2, kv_heads=3, head_size=4)


def test_the_estimate_is_what_is_allocated() -> None:
    cache = KvCache(SHAPE, slots=5, max_len=7)
    assert sum(layer.nbytes for layer in (*cache.keys, *cache.values)) == SHAPE.total_bytes(5, 7)


def test_a_move_copies_the_tokens_of_every_layer_and_no_more() -> None:
    cache = KvCache(SHAPE, slots=3, max_len=6)
    for number, layer in enumerate((*cache.keys, *cache.values), start=1):
        layer[2] = number
    cache.move(2, 0, 4)
    for number, layer in enumerate((*cache.keys, *cache.values), start=1):
        assert (layer[0, :, :4] == number).all()
        assert (layer[0, :, 4:] == 0).all()
        assert (layer[1] == 0).all()


def test_saved_tokens_return_to_any_row_and_touch_no_others() -> None:
    cache = KvCache(SHAPE, slots=3, max_len=6)
    for layer in (*cache.keys, *cache.values):
        layer[1] = np.arange(layer[1].size).reshape(layer[1].shape)
    saved = cache.save(1, 2, 5)
    for layer in (*cache.keys, *cache.values):
        layer[1] = -1
    cache.load(2, 2, saved)
    for layer in (*cache.keys, *cache.values):
        assert (layer[2, :, 2:5] == np.arange(layer[1].size).reshape(layer[1].shape)[:, 2:5]).all()
        assert not layer[2, :, :2].any()
        assert not layer[2, :, 5:].any()


def test_masks_and_positions_follow_each_rows_length() -> None:
    inputs = StepInputs(rows=3, max_len=8)
    assert inputs.attention_mask(np.array([1, 3])).tolist() == [[1, 0, 0], [1, 1, 1]]
    assert inputs.position_ids(np.array([0, 5]), 2).tolist() == [[0, 1], [5, 6]]
    assert inputs.token_ids(np.array([[7], [9]])).tolist() == [[7], [9]]


def test_buffers_are_reused() -> None:
    inputs = StepInputs(rows=2, max_len=8)
    first, second = inputs.attention_mask(np.array([8, 8])), inputs.attention_mask(np.array([2, 1]))
    assert first.ctypes.data == second.ctypes.data
