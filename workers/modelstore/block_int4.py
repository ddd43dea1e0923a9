"""Block int4: symmetric 4-bit weights in blocks of 32 inputs, for onnxruntime's MatMulNBits."""

from collections.abc import Set as AbstractSet

import numpy as np
import onnx
from numpy.typing import NDArray

from shared.errors import ModelUnsupportedError
from workers.modelstore.graph import CONTRIB, GraphBuilder
from workers.modelstore.linear_nodes import FloatArray, LinearNode, Weights

BLOCK = 32
ZERO_POINT = 8
_INT8_ACTIVATIONS = 4  # accuracy level; the others are not batch-invariant, or far slower on CPUs


def pack_blocks(weight: FloatArray) -> tuple[NDArray[np.uint8], FloatArray]:
    """Pack `[outputs, inputs]` into bytes `[outputs, blocks, 16]`, low nibble first, and scales `[outputs, blocks]`.

    The largest value of a block, sign included, becomes -8: it is stored exactly.
    """
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    peaks = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    scales = peaks / np.float32(-ZERO_POINT)
    safe = np.where(scales == 0, np.float32(1), scales)
    values = np.clip(np.rint(blocks / safe) + ZERO_POINT, 0, 15).astype(np.uint8)
    return values[..., 0::2] | (values[..., 1::2] << 4), safe[..., 0].astype(np.float32)


class BlockInt4:
    """Rewrites the linear layers of a model in place."""

    def __init__(self, model: onnx.ModelProto, *, keep_float: AbstractSet[str] = frozenset()) -> None:
        """Take a float32 `model` with its weights; layers whose outputs `keep_float` names stay as they are."""
        self._weights, self._keep_float = Weights(model.graph), keep_float

    def rewrite(self) -> None:
        """Replace every linear layer that is not kept.

        Raises:
            ModelUnsupportedError: a layer's inputs are no multiple of 32.
        """
        for linear in list(self._weights.linear_nodes()):
            if linear.output not in self._keep_float:
                self._replace(linear)
        self._weights.drop_unused()

    def _replace(self, linear: LinearNode) -> None:
        weight = np.ascontiguousarray(self._weights.matrix(linear).T)
        outputs, inputs = weight.shape
        if inputs % BLOCK:
            raise ModelUnsupportedError(f"{linear.output} has {inputs} inputs, no multiple of {BLOCK}; choose int8")
        packed, scales = pack_blocks(weight)
        name = f"{linear.output}.int4"
        self._weights[f"{name}.weight"], self._weights[f"{name}.scales"] = packed, scales
        builder = GraphBuilder()
        builder.node(
            "MatMulNBits",
            [linear.inputs, f"{name}.weight", f"{name}.scales"],
            linear.output,
            domain=CONTRIB,
            K=inputs,
            N=outputs,
            bits=4,
            block_size=BLOCK,
            accuracy_level=_INT8_ACTIVATIONS,
        )
        linear.node.CopyFrom(builder.nodes[0])
