"""Smoothing: moves the spread of activation channels into the weights, so both survive 8 bits (SmoothQuant).

Each input channel of a linear layer is divided by a scale, and the weight's row multiplied by it. The division costs
nothing at run time: it is folded into the weight of the normalisation before, or into up_proj's outputs for down_proj.
Source: Xiao et al. 2022, arXiv 2211.10438, equation 4.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from workers.modelstore.linear_nodes import FloatArray, LinearNode, Weights
from workers.modelstore.quality import open_session, windows

ALPHA = 0.5
ALPHA_ROTATED = 0.25  # only down_proj is left to smooth, and its weights carry it
_NORMS = {"SimplifiedLayerNormalization": 1, "SkipSimplifiedLayerNormalization": 2}


def activation_peaks(directory: Path, names: Sequence[str], text: str) -> dict[str, FloatArray]:
    """Return the largest magnitude of every channel of the named activations while the model reads `text`."""
    session = open_session(directory, names)
    peaks: dict[str, FloatArray] = {}
    for ids in windows(directory, text):
        for name, values in zip(names, session.run(ids, names), strict=True):
            peak = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            peaks[name] = np.maximum(peaks.get(name, peak), peak)
    return peaks


class Smoother:
    """Finds the foldable linear layers of a model and folds scales into it."""

    def __init__(self, model: onnx.ModelProto, *, rotated: bool = False) -> None:
        """Look at `model`, whose weights are loaded; `fold` changes it. A `rotated` one has no uneven norms left."""
        self._operators = {"Mul"} if rotated else {"Mul", *_NORMS}
        self._alpha = ALPHA_ROTATED if rotated else ALPHA
        self._weights = Weights(model.graph)
        self._producers = {output: node for node in model.graph.node for output in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in set(node.input):
                self._readers[name].append(node)
        consumers: dict[str, list[LinearNode]] = defaultdict(list)
        for linear in self._weights.linear_nodes():
            consumers[linear.inputs].append(linear)
        self._foldable = {name: readers for name, readers in consumers.items() if self._can_fold(name, readers)}

    @property
    def activations(self) -> list[str]:
        """Names of the activations whose peaks `fold` needs."""
        return sorted(self._foldable)

    def _can_fold(self, name: str, linears: Sequence[LinearNode]) -> bool:
        # Every reader of the activation must be rescaled, else the others would see divided channels.
        return len(self._readers[name]) == len(linears) and self._target(name) is not None

    def _target(self, name: str) -> str | None:
        """Return the initializer whose last axis makes the channels of activation `name`."""
        producer = self._producers.get(name)
        if producer is None:
            return None
        if producer.op_type == "Gather" and len(self._readers[producer.input[0]]) == 1:  # picks positions: last_hidden
            return self._target(producer.input[0])
        if producer.op_type not in self._operators:
            return None
        if producer.op_type in _NORMS and producer.output[0] == name:
            target = str(producer.input[_NORMS[producer.op_type]])
        elif producer.op_type == "Mul":
            target = self._up_projection(producer) or ""
        else:
            return None
        return target if len(self._readers[target]) == 1 else None

    def _up_projection(self, product: onnx.NodeProto) -> str | None:
        for factor in product.input:
            node = self._producers.get(factor)
            only_here = len(self._readers[factor]) == 1
            if node is not None and node.op_type == "MatMul" and only_here and self._weights.is_matrix(node.input[1]):
                return str(node.input[1])
        return None

    def fold(self, peaks: Mapping[str, FloatArray]) -> None:
        """Fold the scales that follow from `peaks` (from `activation_peaks`) into the model."""
        for name in self.activations:
            linears, target = self._foldable[name], str(self._target(name))
            scales = self._scales(peaks[name], linears)
            self._weights[target] = self._weights[target] / scales
            for linear in linears:
                matrix = self._weights.matrix(linear) * scales[:, None]
                if len(self._readers[linear.weight_name]) > 1:  # tied with the embeddings, which stay as they are
                    linear.node.input[1] = f"{linear.output}.untied"
                self._weights[linear.weight_name] = matrix.T if linear.transposed else matrix

    def _scales(self, peak: FloatArray, linears: Sequence[LinearNode]) -> FloatArray:
        weight_peak = np.max([np.abs(self._weights.matrix(linear)).max(axis=1) for linear in linears], axis=0)
        scales = np.maximum(peak, 1e-5) ** self._alpha / np.maximum(weight_peak, 1e-5) ** (1 - self._alpha)
        scales /= np.exp(np.log(scales).mean())
        return np.asarray(np.clip(scales, 1e-3, 1e3), np.float32)
