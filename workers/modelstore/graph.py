"""Writes a decoder as an ONNX graph with the operators onnxruntime-genai's own builder uses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from workers.modelstore.architecture import Architecture

CONTRIB = "com.microsoft"
OPSET = 21
IR_VERSION = 10
MODEL_FILE = "model.onnx"
LAST_HIDDEN = "last_hidden"


class GraphBuilder:
    """Collects nodes and initializers. Every method returns the name of the value it made."""

    def __init__(self, epsilon: float = 0.0) -> None:
        """Start an empty graph whose normalisations use `epsilon`."""
        self._epsilon = epsilon
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """Add an initializer; adding a name again changes nothing."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str,
        *more_outputs: str,
        domain: str = "",
        **attributes: Any,  # noqa: ANN401  # whatever the operator takes
    ) -> str:
        """Add a node named after its first output."""
        outputs, name = [output, *more_outputs], f"{output}/{operator}"
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=name, domain=domain, **attributes))
        return output

    def linear(self, inputs: str, weight: NDArray[np.float32], output: str) -> str:
        """Add `inputs @ weight.T`; `weight` is `[outputs, inputs]`."""
        return self.node("MatMul", [inputs, self.constant(f"{output}.weight", weight.T)], output)

    def norm(self, inputs: str, weight: NDArray[np.float32], output: str) -> str:
        """Add a root-mean-square normalisation over the last axis."""
        names = [inputs, self.constant(f"{output}.weight", weight)]
        return self.node("SimplifiedLayerNormalization", names, output, epsilon=self._epsilon, axis=-1, stash_type=1)

    def skip_norm(self, skip: str, inputs: str, weight: NDArray[np.float32], output: str, total: str = "") -> str:
        """Add `norm(skip + inputs)`; the sum itself is `total` where that is named."""
        names = [skip, inputs, self.constant(f"{output}.weight", weight)]
        more = ["", "", total] if total else []
        return self.node(
            "SkipSimplifiedLayerNormalization", names, output, *more, domain=CONTRIB, epsilon=self._epsilon
        )

    def model(self, architecture: Architecture) -> onnx.ModelProto:
        """Return the finished model with onnxruntime-genai's names for inputs and outputs."""
        inputs, outputs = _interface(architecture)
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, list(self.initializers.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _interface(architecture: Architecture) -> tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
    value = helper.make_tensor_value_info
    inputs = [
        value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
        value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
    ]
    outputs = [value("logits", TensorProto.FLOAT, ["batch_size", 1, architecture.vocab_size])]
    for layer in range(architecture.layers):
        for kind in ("key", "value"):
            for values, when in ((inputs, "past_key_values"), (outputs, "present")):
                shape = ("batch_size", architecture.kv_heads, f"{when}_length", architecture.head_size)
                values.append(value(f"{when}.{layer}.{kind}", TensorProto.FLOAT, shape))
    return inputs, outputs


def with_all_logits(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose `logits` cover every position, `[batch, sequence, vocabulary]`, for scoring."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if node.output[0] == LAST_HIDDEN:
            hidden, name = node.input[0], node.name
            node.CopyFrom(helper.make_node("Identity", [hidden], [LAST_HIDDEN], name=name))
    logits = next(output for output in copy.graph.output if output.name == "logits")
    logits.type.tensor_type.shape.dim[1].dim_param = "sequence_length"
    return copy


def save(model: onnx.ModelProto, directory: Path, name: str = MODEL_FILE) -> None:
    """Write the graph and, beside it in `<name>.data`, its weights. `model` loses its weights: load it again."""
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / f"{name}.data"
    for path in (directory / name, data):  # onnx appends to a data file that exists
        path.unlink(missing_ok=True)
    onnx.save(model, directory / name, save_as_external_data=True, location=data.name, size_threshold=1024)
    data.chmod(0o644)
