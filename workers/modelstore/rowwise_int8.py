"""Rowwise int8: weights quantised per output channel, activations per row (token) while running.

Per row, not per tensor, so that a sequence's tokens do not depend on its neighbours in the step batch.
"""

from collections.abc import MutableMapping
from collections.abc import Set as AbstractSet

import numpy as np
import onnx
from numpy.typing import NDArray

from workers.modelstore.feedback_rounding import ActivationMoments, round_with_feedback
from workers.modelstore.graph import CONTRIB, GraphBuilder
from workers.modelstore.linear_nodes import FloatArray, LinearNode, Weights
from workers.modelstore.weight_pairs import column_scales, round_pairs

ACTIVATION_ZERO_POINT = 128
ACTIVATION_RANGE = 127.0
SMALLEST_PEAK = 1e-8

RoundedWeight = tuple[NDArray[np.int8], FloatArray]


class RowwiseInt8:
    """Rewrites the linear layers of a model in place."""

    def __init__(
        self,
        model: onnx.ModelProto,
        moments: ActivationMoments | None = None,
        *,
        keep_float: AbstractSet[str] = frozenset(),
        rounded: MutableMapping[str, RoundedWeight] | None = None,
    ) -> None:
        """Take a float32 `model` with its weights.

        With `moments`, weights are rounded with error feedback. Layers whose outputs `keep_float` names stay as they
        are. `rounded`, by output, spares a second attempt on the same model the rounding of the first.
        """
        self._graph, self._moments = model.graph, moments
        self._keep_float = keep_float
        self._known: MutableMapping[str, RoundedWeight] = {} if rounded is None else rounded
        self._weights = Weights(model.graph)
        self._builder = GraphBuilder()
        self._rows: dict[str, tuple[str, str]] = {}
        builder = self._builder
        self._zero = builder.constant("int8.zero_point", np.array(ACTIVATION_ZERO_POINT, np.uint8))
        self._one = builder.constant("int8.one", np.array(1, np.float32))
        self._range = builder.constant("int8.range", np.array(ACTIVATION_RANGE, np.float32))
        self._smallest = builder.constant("int8.smallest_peak", np.array(SMALLEST_PEAK, np.float32))
        self._axis = builder.constant("int8.axis", np.array([-1], np.int64))

    def rewrite(self) -> None:
        """Replace every linear layer that is not kept; nodes keep their order."""
        linears = {
            linear.output: linear for linear in self._weights.linear_nodes() if linear.output not in self._keep_float
        }
        for node in self._graph.node:
            if node.output[0] in linears:
                self._add_linear(linears[node.output[0]])
            else:
                self._builder.nodes.append(node)
        nodes = list(self._builder.nodes)
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        self._weights.drop_unused()
        self._graph.initializer.extend(self._builder.initializers.values())

    def _add_linear(self, linear: LinearNode) -> None:
        builder, name = self._builder, f"{linear.output}.int8"
        if linear.output not in self._known:
            self._known[linear.output] = self._rounded(linear)
        values, scales = self._known[linear.output]
        weight = builder.constant(f"{name}.weight", values)
        columns = builder.constant(f"{name}.scales", scales / np.float32(ACTIVATION_RANGE))
        rows, peaks = self._quantised_rows(linear.inputs)
        inputs = [rows, weight, self._one, columns, self._zero]
        builder.node("MatMulIntegerToFloat", inputs, f"{name}.columns", domain=CONTRIB)
        builder.node("Mul", [f"{name}.columns", peaks], linear.output)

    def _rounded(self, linear: LinearNode) -> RoundedWeight:
        matrix = self._weights.matrix(linear)
        scales = column_scales(matrix)
        moments = self._moments.of(linear.inputs) if self._moments else None
        if moments is None:
            return round_pairs(matrix, scales), scales
        return round_with_feedback(matrix, scales, moments), scales

    def _quantised_rows(self, inputs: str) -> tuple[str, str]:
        """Return uint8 rows and their peaks `[..., 1]`; layers that read the same activations share them."""
        if inputs not in self._rows:
            self._rows[inputs] = self._add_rows(inputs)
        return self._rows[inputs]

    def _add_rows(self, inputs: str) -> tuple[str, str]:
        builder, name = self._builder, f"{inputs}.int8"
        builder.node("Abs", [inputs], f"{name}.magnitude")
        builder.node("ReduceMax", [f"{name}.magnitude", self._axis], f"{name}.peak", keepdims=1)
        builder.node("Max", [f"{name}.peak", self._smallest], f"{name}.safe_peak")
        builder.node("Div", [self._range, f"{name}.safe_peak"], f"{name}.inverse_scale")
        builder.node("Mul", [inputs, f"{name}.inverse_scale"], f"{name}.scaled")
        rows = builder.node("QuantizeLinear", [f"{name}.scaled", self._one, self._zero], f"{name}.rows")
        return rows, f"{name}.safe_peak"
