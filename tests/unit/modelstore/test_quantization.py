from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import ModelUnsupportedError
from tests.unit.modelstore.tiny_model import TinyModel
from workers.engine.runtime import onnxruntime
from workers.modelstore.block_int4 import BlockInt4, pack_blocks
from workers.modelstore.compact_embeddings import compact_embeddings
from workers.modelstore.feedback_rounding import ActivationMoments, round_with_feedback, second_moments
from workers.modelstore.gguf_import import convert_gguf
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.graph import GraphBuilder, save
from workers.modelstore.quality import open_session
from workers.modelstore.rotation import Rotator, orthogonal_matrix
from workers.modelstore.rowwise_int8 import RowwiseInt8
from workers.modelstore.smoothing import Smoother, activation_peaks
from workers.modelstore.weight_pairs import column_scales, round_pairs

IDS = [1, 17, 44, 201, 9, 5, 5, 130]
TEXT = "the cat and the dog, 12 of them"


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def float_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    convert_gguf(GgufFile(TinyModel.random(request.param).write(folder / "tiny.gguf")), folder / "fp32")
    return folder / "fp32"


def logits(directory: Path, ids: list[int]) -> np.ndarray:
    return open_session(directory).run(ids, ["logits"])[0]


def rewritten(float_dir: Path, target: Path, model: onnx.ModelProto) -> Path:
    target.mkdir()
    for name in ("genai_config.json", "tokenizer.json"):
        (target / name).write_bytes((float_dir / name).read_bytes())
    save(model, target)
    return target


def relative_error(values: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(values - expected) / np.linalg.norm(expected))


def test_int8_keeps_the_logits_and_leaves_no_float_matrix(float_dir: Path, tmp_path: Path) -> None:
    model = onnx.load(float_dir / "model.onnx")
    RowwiseInt8(model).rewrite()
    operators = [node.op_type for node in model.graph.node]
    assert "MatMul" not in operators
    assert operators.count("MatMulIntegerToFloat") == 2 * 5 + 1
    quantised = logits(rewritten(float_dir, tmp_path / "int8", model), IDS)
    assert relative_error(quantised, logits(float_dir, IDS)) < 0.06


def test_a_row_of_int8_does_not_depend_on_its_neighbours() -> None:
    builder = GraphBuilder()
    builder.linear("x", np.random.default_rng(1).normal(size=(6, 16)).astype(np.float32), "y")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        builder.nodes,
        "one",
        [value("x", onnx.TensorProto.FLOAT, ["rows", 16])],
        [value("y", onnx.TensorProto.FLOAT, ["rows", 6])],
        list(builder.initializers.values()),
    )
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    RowwiseInt8(model).rewrite()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(2).normal(size=(33, 16)).astype(np.float32) * np.logspace(-4, 4, 33)[:, None]
    rows = rows.astype(np.float32)
    together = session.run(["y"], {"x": rows})[0]
    for index in range(len(rows)):
        np.testing.assert_array_equal(session.run(["y"], {"x": rows[index : index + 1]})[0][0], together[index])
    assert np.isfinite(session.run(["y"], {"x": np.zeros((2, 16), np.float32)})[0]).all()


def test_smoothing_leaves_the_float_model_as_it_was(float_dir: Path, tmp_path: Path) -> None:
    model = onnx.load(float_dir / "model.onnx")
    smoother = Smoother(model)
    assert len(smoother.activations) == 2 * 3 + 1
    smoother.fold(activation_peaks(float_dir, smoother.activations, TEXT))
    smoothed = rewritten(float_dir, tmp_path / "smoothed", model)
    np.testing.assert_allclose(logits(smoothed, IDS), logits(float_dir, IDS), rtol=2e-3, atol=2e-3)


def test_rotation_leaves_the_float_model_as_it_was(float_dir: Path, tmp_path: Path) -> None:
    model = onnx.load(float_dir / "model.onnx")
    rotator = Rotator(model)
    assert rotator.applicable
    rotator.fold()
    rotated = rewritten(float_dir, tmp_path / "rotated", model)
    np.testing.assert_allclose(logits(rotated, IDS), logits(float_dir, IDS), rtol=2e-3, atol=2e-3)
    name = "layers.1.input_norm"
    assert not np.allclose(
        activation_peaks(rotated, [name], TEXT)[name], activation_peaks(float_dir, [name], TEXT)[name]
    )


@pytest.mark.parametrize("size", [2, 9, 64, 576])
def test_the_rotation_is_orthogonal_and_spreads_every_channel(size: int) -> None:
    matrix = orthogonal_matrix(size)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-5)
    assert np.abs(matrix).max() <= np.sqrt(2 / size) + 1e-6


def test_a_stream_read_by_something_unknown_is_not_rotated(float_dir: Path) -> None:
    model = onnx.load(float_dir / "model.onnx")
    model.graph.node.append(onnx.helper.make_node("Relu", ["embeddings"], ["aside"]))
    before = model.SerializeToString()
    rotator = Rotator(model)
    rotator.fold()
    assert not rotator.applicable
    assert model.SerializeToString() == before


def test_error_feedback_keeps_the_outputs_closer_than_plain_rounding() -> None:
    random = np.random.default_rng(3)
    mixing = random.normal(size=(48, 48)) * np.logspace(0, -2, 48)
    rows = random.normal(size=(400, 48)) @ mixing
    weight = random.normal(size=(48, 20)).astype(np.float32)
    scales = column_scales(weight)
    plain, fed_back = round_pairs(weight, scales), round_with_feedback(weight, scales, rows.T @ rows)
    plain_loss, loss = (np.square(rows @ (values * scales - weight)).sum() for values in (plain, fed_back))
    assert loss < 0.6 * plain_loss


def test_without_correlation_error_feedback_is_plain_rounding() -> None:
    weight = np.random.default_rng(4).normal(size=(80, 3)).astype(np.float32)
    scales = column_scales(weight)
    plain = round_pairs(weight, scales)
    np.testing.assert_array_equal(round_with_feedback(weight, scales, np.eye(80)), plain)


def test_moments_are_measured_in_groups_and_left_out_for_wide_layers(
    float_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["layers.0.input_norm", "layers.0.mlp.product", "last_hidden"]
    expected = second_moments(float_dir, names, TEXT)
    monkeypatch.setattr("workers.modelstore.feedback_rounding.MOMENT_BYTES", 1)
    moments = ActivationMoments(float_dir, [*zip(names, [64, 96, 64], strict=True), ("wide", 5000)], TEXT)
    for name in names:
        found = moments.of(name)
        assert found is not None
        np.testing.assert_allclose(found.tolist(), expected[name].tolist(), rtol=1e-6)
    assert moments.of("wide") is None


def test_smoothing_evens_out_the_activations(float_dir: Path, tmp_path: Path) -> None:
    model = onnx.load(float_dir / "model.onnx")
    smoother = Smoother(model)
    before = activation_peaks(float_dir, smoother.activations, TEXT)
    smoother.fold(before)
    after = activation_peaks(rewritten(float_dir, tmp_path / "smoothed", model), smoother.activations, TEXT)
    for name, peak in before.items():
        assert after[name].max() / np.median(after[name]) < peak.max() / np.median(peak)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_packed_blocks_come_back_within_half_a_step(seed: int) -> None:
    weight = np.random.default_rng(seed).normal(size=(3, 64)).astype(np.float32)
    packed, scales = pack_blocks(weight)
    assert (packed.shape, scales.shape) == ((3, 2, 16), (3, 2))
    values = np.stack([packed & 15, packed >> 4], axis=-1).reshape(3, 2, 32).astype(np.int32) - 8
    error = np.abs(values * scales[..., None] - weight.reshape(3, 2, 32))
    # The value opposite to the largest may need +8, which four bits do not have: one whole step there.
    assert (error <= np.abs(scales[..., None]) * np.where(values == 7, 1.001, 0.501)).all()


def test_int4_follows_the_float_model(float_dir: Path, tmp_path: Path) -> None:
    model = onnx.load(float_dir / "model.onnx")
    BlockInt4(model).rewrite()
    assert "MatMul" not in {node.op_type for node in model.graph.node}
    quantised = logits(rewritten(float_dir, tmp_path / "int4", model), IDS)
    assert relative_error(quantised, logits(float_dir, IDS)) < 0.35


def test_int4_refuses_what_blocks_do_not_divide() -> None:
    builder = GraphBuilder()
    builder.linear("x", np.ones((6, 40), np.float32), "odd")
    graph = onnx.helper.make_graph(builder.nodes, "one", [], [], list(builder.initializers.values()))
    with pytest.raises(ModelUnsupportedError, match="odd has 40 inputs"):
        BlockInt4(onnx.helper.make_model(graph)).rewrite()


def test_embeddings_take_a_byte_a_value_and_stay_close(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    convert_gguf(GgufFile(TinyModel.random("llama", tied=False).write(tmp_path / "tiny.gguf")), directory)
    expected = open_session(directory, ["embeddings"]).run([3, 5, 3], ["embeddings"])[0]
    model = onnx.load(directory / "model.onnx")
    compact_embeddings(model)
    assert not any(t.name == "embed_tokens.weight" for t in model.graph.initializer)
    save(model, directory)
    found = open_session(directory, ["embeddings"]).run([3, 5, 3], ["embeddings"])[0]
    np.testing.assert_allclose(found, expected, atol=np.abs(expected).max() / 127)
    assert (found[0] == found[2]).all()


def test_a_table_that_logits_read_too_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    convert_gguf(GgufFile(TinyModel.random("llama", tied=True).write(tmp_path / "tiny.gguf")), directory)
    model = onnx.load(directory / "model.onnx")
    before = model.SerializeToString(deterministic=True)
    compact_embeddings(model)
    assert model.SerializeToString(deterministic=True) == before
