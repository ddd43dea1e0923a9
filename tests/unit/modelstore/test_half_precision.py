import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shared.cpu import Cpu
from tests.unit.modelstore.tiny_model import TinyModel
from workers.modelstore.genai_import import GenaiDirectory
from workers.modelstore.gguf_import import convert_gguf
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.graph import save
from workers.modelstore.half_precision import widen, widen_directory
from workers.modelstore.quality import open_session
from workers.modelstore.store import ImportRequest, ModelStore

AVX2 = Cpu("x86_64", "test", frozenset({"avx2"}))
IDS = [1, 17, 44, 201, 9, 5, 5, 130]
HALVES = {"float16": (TensorProto.FLOAT16, np.float16), "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    convert_gguf(GgufFile(TinyModel.random("qwen3").write(folder / "tiny.gguf")), folder / "fp32")
    return folder / "fp32"


def halved(source: Path, target: Path, kind: str) -> Path:
    """Cast as a builder for GPUs does: weights, inputs and outputs in half precision, casts around the norms."""
    shutil.copytree(source, target)
    type_, numpy_type = HALVES[kind]
    model = onnx.load(target / "model.onnx")
    graph = model.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor).astype(numpy_type)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = type_
    nodes = []
    for node in graph.node:
        nodes.append(node)
        if node.op_type == "SimplifiedLayerNormalization" and node.output[0].endswith("input_norm"):
            name = node.output[0]
            node.output[0] = f"{name}.wide"
            nodes.append(helper.make_node("Cast", [f"{name}.wide"], [name], to=type_))
    graph.ClearField("node")
    graph.node.extend(nodes)
    save(model, target)
    config = json.loads((target / "genai_config.json").read_text())
    config["model"]["decoder"]["session_options"]["provider_options"] = [{"cuda": {}}]
    (target / "genai_config.json").write_text(json.dumps(config))
    return target


def logits(directory: Path) -> np.ndarray:
    return open_session(directory).run(IDS, ["logits"])[0]


@pytest.mark.parametrize(("kind", "rounding"), [("float16", 5e-3), ("bfloat16", 4e-2)])
def test_a_half_precision_directory_becomes_the_float32_model_it_was(
    floats: Path, tmp_path: Path, kind: str, rounding: float
) -> None:
    source = GenaiDirectory(halved(floats, tmp_path / "half", kind))
    assert (source.half, source.precision) == (kind, "fp32")
    wide = widen_directory(source, tmp_path / "wide")
    assert (wide.half, wide.precision) == (None, "fp32")
    expected = logits(floats)
    assert np.linalg.norm(logits(wide.path) - expected) < rounding * np.linalg.norm(expected)
    assert "Cast" not in [node.op_type for node in wide.graph.node if "input_norm" in node.output[0]]
    assert "cuda" not in (wide.path / "genai_config.json").read_text()


def test_float16_is_quantised_like_the_float32_it_was(floats: Path, tmp_path: Path) -> None:
    source = halved(floats, tmp_path / "half", "float16")
    version = ModelStore(tmp_path / "models", AVX2, lambda _: None).add(ImportRequest(source, "tiny"))
    manifest = version.manifest
    assert (manifest.precision, manifest.quantisation) == ("int8", ("rotation", "smoothing", "error feedback"))
    assert manifest.quality is not None
    assert manifest.quality.argmax_agreement is not None
    assert manifest.quality.argmax_agreement > 0.9


def test_constants_and_subgraphs_are_widened_too() -> None:
    tensor = numpy_helper.from_array(np.array([1.5], np.float16), "c")
    inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=tensor)], "then", [], [])
    outer = helper.make_graph([helper.make_node("If", ["p"], ["o"], then_branch=inner, else_branch=inner)], "g", [], [])
    model = helper.make_model(outer)
    widen(model)
    constant = model.graph.node[0].attribute[0].g.node[0].attribute[0].t
    assert numpy_helper.to_array(constant).dtype == np.float32
