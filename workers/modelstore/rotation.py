"""Rotation: turns the residual stream by an orthogonal matrix, so that no channel stands out (QuaRot).

Normalising by the root mean square does not notice a rotation, so the matrix is folded into the weights that write to
the residual stream and into those that read from it: the model computes the same, and nothing is added at run time.
Source: Ashkboos et al. 2024, arXiv 2404.00456, section 4, stage 1a.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import onnx

from workers.modelstore.linear_nodes import FloatArray, LinearNode, Weights

_NORMS = {"SimplifiedLayerNormalization": 1, "SkipSimplifiedLayerNormalization": 2}
_SUM_OUTPUT = 3
_SEED = 20240404


def orthogonal_matrix(size: int) -> FloatArray:
    """Return a cosine transform with random signs: spreads every channel over all, exists for any size."""
    index = np.arange(size)
    matrix = np.sqrt(2 / size) * np.cos(np.pi * np.outer(2 * index + 1, index) / (2 * size))
    matrix[:, 0] /= np.sqrt(2)
    signs = np.random.default_rng(_SEED).choice([-1.0, 1.0], size)
    return np.asarray(signs[:, None] * matrix, np.float32)


@dataclass
class _Stream:
    """What touches the residual stream: its tables, the layers that write to it, and those behind each norm."""

    tables: list[str] = field(default_factory=list)
    writers: list[LinearNode] = field(default_factory=list)
    readers: dict[str, list[LinearNode]] = field(default_factory=dict)


class Rotator:
    """Follows the residual stream of a model from the embeddings, and rotates it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Look at `model`, whose weights are loaded; `fold` changes it."""
        self._weights = Weights(model.graph)
        self._graph = model.graph
        self._consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in set(node.input):
                self._consumers[name].append(node)
        self._linears = {linear.output: linear for linear in self._weights.linear_nodes()}
        self._stream = self._follow()

    @property
    def applicable(self) -> bool:
        """Whether everything that touches the residual stream is understood."""
        return self._stream is not None

    def _follow(self) -> _Stream | None:
        stream = _Stream()
        lookups = [n for n in self._graph.node if n.op_type == "Gather" and self._weights.is_matrix(n.input[0])]
        if len(lookups) != 1:
            return None
        stream.tables.append(str(lookups[0].input[0]))
        pending = [str(lookups[0].output[0])]
        known = set(pending)
        while pending:
            for node in self._consumers[pending.pop()]:
                total = self._pass_norm(node, known, stream)
                if total is None:
                    return None
                if total and total not in known:
                    known.add(total)
                    pending.append(total)
        return stream

    def _pass_norm(self, node: onnx.NodeProto, known: set[str], stream: _Stream) -> str | None:
        """Note what a norm on the stream reads and feeds; return the sum it passes on, "" without, None if unknown."""
        if node.op_type not in _NORMS:
            return None
        gamma = str(node.input[_NORMS[node.op_type]])
        if gamma not in stream.readers:
            readers = self._readers(str(node.output[0]))
            if readers is None or len(self._consumers[gamma]) != 1:
                return None
            stream.readers[gamma] = readers
            for name in node.input[: _NORMS[node.op_type]]:
                if name in self._linears:
                    stream.writers.append(self._linears[name])
                elif name not in known:
                    return None
        return str(node.output[_SUM_OUTPUT]) if len(node.output) > _SUM_OUTPUT else ""

    def _readers(self, name: str) -> list[LinearNode] | None:
        found: list[LinearNode] = []
        for node in self._consumers[name]:
            if node.op_type == "Gather" and node.input[0] == name:  # picks positions
                behind = self._readers(str(node.output[0]))
            else:
                behind = [self._linears[node.output[0]]] if node.output[0] in self._linears else None
            if behind is None:
                return None
            found += behind
        return found

    def fold(self) -> None:
        """Rotate the model in place; does nothing unless `applicable`."""
        if self._stream is None:
            return
        weights, stream = self._weights, self._stream
        rotation = orthogonal_matrix(weights[stream.tables[0]].shape[1])
        for gamma, readers in stream.readers.items():
            scales = weights[gamma]
            for linear in readers:
                self._replace(linear, rotation.T @ (scales[:, None] * weights.matrix(linear)))
            weights[gamma] = np.ones_like(scales)
        for table in stream.tables:
            weights[table] = weights[table] @ rotation
        for linear in stream.writers:
            self._replace(linear, weights.matrix(linear) @ rotation)

    def _replace(self, linear: LinearNode, matrix: FloatArray) -> None:
        if len(self._consumers[linear.weight_name]) > 1:  # tied with the embeddings
            linear.node.input[1] = f"{linear.output}.untied"
        self._weights[linear.weight_name] = matrix.T if linear.transposed else matrix
