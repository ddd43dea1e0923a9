"""Finds the layers that int8 hurts most, by the error it makes in what each computes."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from workers.engine.decoder_config import DecoderConfig
from workers.modelstore.linear_nodes import FloatArray, Weights
from workers.modelstore.quality import open_session, windows

MOST_KEPT = 0.1  # share of the linear layers' weights that may stay float32
_ACTIVATION_RANGE = 127.0
_FEW = 16  # layers whose activations are held at a time


def layer_errors(directory: Path, text: str, weight_range: int) -> dict[str, float]:
    """Return, by the name of its output, the relative error that int8 makes in each linear layer of a float32 model.

    Measured on the first window of `text`, each layer by itself on exact activations.
    """
    model = onnx.load(DecoderConfig.read(directory).path)
    weights = Weights(model.graph)
    readers: dict[str, list[tuple[str, FloatArray]]] = {}
    for linear in weights.linear_nodes():
        readers.setdefault(linear.inputs, []).append((linear.output, weights.matrix(linear)))
    names = list(readers)
    errors: dict[str, float] = {}
    ids = windows(directory, text)[0]
    for start in range(0, len(names), _FEW):
        group = names[start : start + _FEW]
        session = open_session(directory, group)
        for name, rows in zip(group, session.run(ids, group), strict=True):
            errors |= {output: _error(rows, matrix, weight_range) for output, matrix in readers[name]}
    return errors


def _error(rows: FloatArray, matrix: FloatArray, weight_range: int) -> float:
    exact = rows @ matrix
    rounded = _rounded(rows.T, _ACTIVATION_RANGE).T @ _rounded(matrix, weight_range)
    return float(np.linalg.norm(rounded - exact) / max(float(np.linalg.norm(exact)), 1e-20))


def _rounded(values: FloatArray, steps: float) -> FloatArray:
    scales = np.abs(values).max(axis=0) / np.float32(steps)
    scales[scales == 0] = 1
    return np.asarray(np.rint(values / scales) * scales, np.float32)


def layers_to_keep(errors: Mapping[str, float], sizes: Mapping[str, int]) -> Iterator[frozenset[str]]:
    """Yield growing sets of the worst layers, twice as many each time, while they hold at most 10 % of the weights."""
    budget = MOST_KEPT * sum(sizes.values())
    worst: list[str] = []
    for name in sorted(errors, key=lambda name: -errors[name]):
        if sizes[name] <= budget:
            budget -= sizes[name]
            worst.append(name)
    count = 1
    while count < 2 * len(worst):
        yield frozenset(worst[:count])
        count *= 2
