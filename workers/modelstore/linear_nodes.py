"""Finds and replaces the weights of an ONNX graph's linear layers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

FloatArray = NDArray[np.float32]
_MATRIX = 2


@dataclass(frozen=True)
class LinearNode:
    """A MatMul by a constant float32 matrix; `transposed` where that is stored `[outputs, inputs]`."""

    node: onnx.NodeProto
    transposed: bool

    @property
    def inputs(self) -> str:
        """Name of the activations."""
        return str(self.node.input[0])

    @property
    def weight_name(self) -> str:
        """Name of the initializer."""
        return str(self.node.input[1])

    @property
    def output(self) -> str:
        """Name of the product."""
        return str(self.node.output[0])


class Weights:
    """A graph's initializers by name, read as float32 arrays and written back."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        """Index the initializers of `graph`, which keeps them."""
        self._graph = graph
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}

    def __getitem__(self, name: str) -> FloatArray:
        """Return the values; a read-only view where possible."""
        return np.asarray(numpy_helper.to_array(self._tensors[name]), np.float32)

    def __setitem__(self, name: str, values: NDArray[np.generic]) -> None:
        """Replace or add an initializer."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(values), name)
        if name in self._tensors:
            self._tensors[name].CopyFrom(tensor)
        else:
            self._tensors[name] = self._graph.initializer.add()
            self._tensors[name].CopyFrom(tensor)

    def is_matrix(self, name: str) -> bool:
        """Whether `name` is a two-dimensional float32 initializer."""
        tensor = self._tensors.get(name)
        return tensor is not None and len(tensor.dims) == _MATRIX and tensor.data_type == onnx.TensorProto.FLOAT

    def matrix(self, linear: LinearNode) -> FloatArray:
        """Return the weight of `linear` as `[inputs, outputs]`."""
        values = self[linear.weight_name]
        return values.T if linear.transposed else values

    def linear_nodes(self) -> Iterator[LinearNode]:
        """Yield every linear layer of the graph."""
        for node in self._graph.node:
            transposed = node.op_type == "FusedMatMul" and any(a.name == "transB" and a.i for a in node.attribute)
            if (node.op_type == "MatMul" or transposed) and self.is_matrix(node.input[1]):
                yield LinearNode(node, transposed)

    def drop_unused(self) -> None:
        """Remove the initializers no node reads any more."""
        used = {name for node in self._graph.node for name in node.input}
        kept = [tensor for tensor in self._graph.initializer if tensor.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)
        self._tensors = {tensor.name: tensor for tensor in self._graph.initializer}
