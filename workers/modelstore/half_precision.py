"""Widens float16 and bfloat16 models to float32, which CPUs compute about 25 times faster."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from workers.engine.decoder_config import CONFIG_FILE
from workers.modelstore.genai_import import HALVES, GenaiDirectory
from workers.modelstore.graph import save

# Operators whose first output is a float whatever goes in, and those that pass on the type of what goes in.
_FLOAT = frozenset(
    {"MatMul", "FusedMatMul", "MatMulNBits", "Gemm", "GroupQueryAttention", "MultiHeadAttention", "RotaryEmbedding"}
    | {"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "LayerNormalization", "Softmax"}
    | {"SkipLayerNormalization", "RMSNormalization", "Sigmoid", "QuickGelu", "Gelu", "FastGelu", "Tanh"}
)
_PASSING = frozenset({"Add", "Mul", "Sub", "Div", "Gather", "Reshape", "Transpose", "Slice", "Concat", "Split"})


def widen(model: onnx.ModelProto) -> None:
    """Make every half-precision weight, input, output and cast of `model` float32, in place."""
    _widen_graph(model.graph)
    _drop_idle_casts(model.graph)


def widen_directory(source: GenaiDirectory, target: Path) -> GenaiDirectory:
    """Write `source` in float32 into the directory `target`; execution providers other than the CPU are forgotten."""
    source.copy_to(target, with_weights=False)
    model = onnx.load(source.config.path)
    widen(model)
    save(model, target, source.config.path.name)
    config: dict[str, Any] = json.loads((target / CONFIG_FILE).read_text(encoding="utf-8"))
    config["model"]["decoder"].setdefault("session_options", {})["provider_options"] = []
    (target / CONFIG_FILE).write_text(json.dumps(config, indent=1), encoding="utf-8")
    return GenaiDirectory(target)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in HALVES:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            _widen_attribute(node, attribute)


def _widen_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    if attribute.HasField("t"):
        _widen_tensor(attribute.t)
    if attribute.HasField("g"):
        _widen_graph(attribute.g)
    if node.op_type == "Cast" and attribute.name == "to" and attribute.i in HALVES:
        attribute.i = TensorProto.FLOAT


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in HALVES:
        values = np.asarray(numpy_helper.to_array(tensor), np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _drop_idle_casts(graph: onnx.GraphProto) -> None:
    """Remove casts from float32 to float32, which would hide the layers around them from the quantiser."""
    floats = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT}
    floats |= {value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    outputs = {value.name for value in graph.output}
    same: dict[str, str] = {}
    kept = []
    for node in graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]
        to_float = node.op_type == "Cast" and any(a.name == "to" and a.i == TensorProto.FLOAT for a in node.attribute)
        if to_float and node.input[0] in floats and node.output[0] not in outputs:
            same[node.output[0]] = node.input[0]
            continue
        floats.update(_float_outputs(node, floats, to_float=to_float))
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _float_outputs(node: onnx.NodeProto, floats: set[str], *, to_float: bool) -> Iterator[str]:
    passed_on = node.op_type in _PASSING and node.input[0] in floats
    if to_float or node.op_type in _FLOAT or passed_on:
        yield from node.output
