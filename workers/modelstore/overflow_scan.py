"""Looks for NaN and overflow: in every weight, and in what every linear layer computes from the calibration text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from shared.errors import ModelUnsupportedError

_LINEAR = frozenset({"MatMul", "FusedMatMul", "Gemm", "MatMulNBits", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"})
_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})


class Probes:
    """Two figures for every linear layer of a graph, computed inside it: keeping the products would take gigabytes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Add the figures to the outputs of `model`."""
        self._layers = [name for name in _products(model.graph) if name not in {o.name for o in model.graph.output}]
        for layer in self._layers:
            _add_probe(model.graph, layer)

    @property
    def outputs(self) -> list[str]:
        """Names to ask the session for."""
        return [f"{layer}/{figure}" for layer in self._layers for figure in ("sum", "peak")]

    def largest(self, values: Sequence[NDArray[np.float32]]) -> float:
        """Return the largest magnitude among the products; `values` are those of `outputs`.

        Raises:
            ModelUnsupportedError: a layer computed NaN or infinity; names it.
        """
        for layer, total in zip(self._layers, values[::2], strict=True):
            if not np.isfinite(total).all():
                raise ModelUnsupportedError(f"{layer} computes NaN or infinite values; the weights are not usable")
        return max((float(peak.max()) for peak in values[1::2]), default=0.0)


def _products(graph: onnx.GraphProto) -> list[str]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    names = [str(node.output[0]) for node in graph.node if node.op_type in _LINEAR]
    # Rowwise int8 multiplies by the rows' scales in a node of its own; only then is it the layer's product.
    scaled = {name: readers.get(name, []) for name in names if name.endswith(".columns")}
    return [str(scaled[name][0].output[0]) if scaled.get(name) else name for name in names]


def _add_probe(graph: onnx.GraphProto, layer: str) -> None:
    nodes = [
        helper.make_node("Abs", [layer], [f"{layer}/magnitude"]),
        # A maximum may pass over NaN; a sum cannot.
        helper.make_node("ReduceL1", [layer], [f"{layer}/sum"], keepdims=1),
        helper.make_node("ReduceMax", [f"{layer}/magnitude"], [f"{layer}/peak"], keepdims=1),
    ]
    graph.node.extend(nodes)
    for name in (f"{layer}/sum", f"{layer}/peak"):
        graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))


def check_weights(path: Path) -> None:
    """Read every weight of the ONNX file `path`, one tensor at a time.

    Raises:
        ModelUnsupportedError: one is NaN or infinite; names the tensor.
    """
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if tensor.data_type not in _FLOATS:
            continue
        if uses_external_data(tensor):
            load_external_data_for_tensor(tensor, str(path.parent))
        if not np.isfinite(numpy_helper.to_array(tensor).astype(np.float32)).all():
            raise ModelUnsupportedError(f"weight {tensor.name} holds NaN or infinite values; get the model again")
        tensor.ClearField("raw_data")
