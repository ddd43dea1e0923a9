import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.runtime import onnxruntime
from workers.modelstore.feedback_rounding import round_with_feedback
from workers.modelstore.weight_pairs import PAIR_LIMIT, WEIGHT_RANGE, column_scales, round_pairs

SHAPES = st.tuples(st.integers(1, 70), st.integers(1, 6))


def pair_sums(values: np.ndarray) -> np.ndarray:
    padded = np.concatenate([values, np.zeros((len(values) % 2, values.shape[1]), values.dtype)]).astype(np.int32)
    return padded[0::2] + padded[1::2]


def heavy_tailed(seed: int, shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(1.5, size=shape).astype(np.float32)


@given(st.integers(0, 2**32 - 1), SHAPES)
def test_no_pair_overflows_however_it_was_rounded(seed: int, shape: tuple[int, int]) -> None:
    weight = heavy_tailed(seed, shape)
    scales = column_scales(weight)
    rows = np.random.default_rng(seed).normal(size=(90, shape[0])).astype(np.float64)
    for values in (round_pairs(weight, scales), round_with_feedback(weight, scales, rows.T @ rows)):
        assert np.abs(values.astype(np.int32)).max() <= WEIGHT_RANGE
        assert np.abs(pair_sums(values)).max() <= PAIR_LIMIT


@given(st.integers(0, 2**32 - 1), SHAPES)
def test_what_is_not_bounded_comes_back_within_half_a_step(seed: int, shape: tuple[int, int]) -> None:
    weight = heavy_tailed(seed, shape)
    scales = column_scales(weight)
    values = round_pairs(weight, scales)
    free = np.abs(pair_sums(np.rint(weight / scales).astype(np.int32))) < PAIR_LIMIT
    free = np.repeat(free, 2, axis=0)[: len(weight)]
    error = np.abs(values * scales - weight)
    assert (error <= scales * 0.501)[free].all()


@given(st.integers(0, 2**32 - 1))
def test_the_scales_lose_less_than_weights_within_half_the_range(seed: int) -> None:
    weight = np.random.default_rng(seed).normal(size=(256, 4)).astype(np.float32)
    scales = column_scales(weight)
    coarse = np.abs(weight).max(axis=0) / np.float32(64)
    loss = np.square(round_pairs(weight, scales) * scales - weight).sum()
    assert loss < 0.9 * np.square(np.rint(weight / coarse) * coarse - weight).sum()


def test_a_column_of_zeros_stays_zero() -> None:
    weight = np.zeros((4, 2), np.float32)
    scales = column_scales(weight)
    assert not round_pairs(weight, scales).any()
    assert np.isfinite(scales).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 12, 33])
@pytest.mark.parametrize("inputs", [1, 3, 4, 64, 130])
def test_the_kernels_of_this_machine_sum_such_weights_exactly(rows: int, inputs: int) -> None:
    outputs = 48
    random = np.random.default_rng(rows * 1000 + inputs)
    first = random.choice([-127, -64, 1, 64, 127], size=(-(-inputs // 2), outputs))
    second = np.clip(random.choice([-128, 128], size=first.shape) - first, -127, 127)
    weights = np.stack([first, second], axis=1).reshape(-1, outputs)[:inputs].astype(np.int8)
    activations = random.choice([0, 1, 127, 128, 254, 255], size=(rows, inputs)).astype(np.uint8)
    value, tensor = onnx.helper.make_tensor_value_info, onnx.TensorProto
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulIntegerToFloat", ["a", "w", *"11", "zero"], ["y"], domain="com.microsoft")],
        "pairs",
        [value("a", tensor.UINT8, ["rows", inputs])],
        [value("y", tensor.FLOAT, ["rows", outputs])],
        [
            onnx.numpy_helper.from_array(weights, "w"),
            onnx.numpy_helper.from_array(np.array(1, np.float32), "1"),
            onnx.numpy_helper.from_array(np.array(128, np.uint8), "zero"),
        ],
    )
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(["y"], {"a": activations})[0]
    np.testing.assert_array_equal(found, (activations.astype(np.int64) - 128) @ weights.astype(np.int64))
