"""Rounding with error feedback: what one weight loses, the weights still to be rounded make up for (GPTQ).

Knowing how activations move together, it makes good most of what bounding pairs of large weights costs.
Source: Frantar et al. 2022, arXiv 2210.17323, section 3.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workers.modelstore.linear_nodes import FloatArray
from workers.modelstore.quality import open_session, windows
from workers.modelstore.weight_pairs import round_first, round_second

DAMPING = 0.1
MOST_INPUTS = 4096  # the work grows with the cube of a layer's inputs; wider layers are rounded plainly
MOMENT_BYTES = 1_000_000_000
_BLOCK = 64

Moments = NDArray[np.float64]


def second_moments(directory: Path, names: Sequence[str], text: str) -> dict[str, Moments]:
    """Return `X.T @ X`, `[inputs, inputs]`, of the named activations while the model reads `text`.

    Rows are scaled to peak 1, as they are before int8. The first token of a window is left out: models park attention
    on it, its activations are like no other's.
    """
    session = open_session(directory, names)
    moments: dict[str, Moments] = {}
    for ids in windows(directory, text):
        for name, values in zip(names, session.run(ids, names), strict=True):
            rows = values[1:].astype(np.float64)
            rows /= np.maximum(np.abs(rows).max(axis=-1, keepdims=True), 1e-8)
            moments[name] = moments.get(name, 0.0) + rows.T @ rows
    return moments


def _feedback_matrix(moments: Moments) -> FloatArray:
    """Return the upper Cholesky factor of the damped moments' inverse: how an error spreads to later inputs."""
    mean = float(np.trace(moments)) / len(moments)
    damped = moments + np.eye(len(moments)) * (DAMPING * mean or 1.0)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(damped)).T, np.float32)


def _busiest_pairs_first(busyness: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the order of the inputs: pairs together, those whose activations are largest first, a lone one last."""
    paired = len(busyness) // 2 * 2
    pairs = np.argsort(-(busyness[0:paired:2] + busyness[1:paired:2]), kind="stable")
    return np.concatenate([np.stack([2 * pairs, 2 * pairs + 1], axis=1).ravel(), np.arange(paired, len(busyness))])


def round_with_feedback(weight: FloatArray, scales: FloatArray, moments: Moments) -> NDArray[np.int8]:
    """Round `weight` `[inputs, outputs]` to multiples of `scales` `[outputs]`, pairs bounded (see `weight_pairs`)."""
    order = _busiest_pairs_first(np.diag(moments))
    feedback = _feedback_matrix(moments[np.ix_(order, order)])
    left = np.array(weight[order], np.float32)
    values = np.empty(left.shape, np.int8)
    for start in range(0, len(left), _BLOCK):
        stop = min(start + _BLOCK, len(left))
        rounded, errors = _round_block(left[start:stop], scales, feedback[start:stop, start:stop])
        values[order[start:stop]] = rounded
        left[stop:] -= feedback[start:stop, stop:].T @ errors
    return values


def _round_block(left: FloatArray, scales: FloatArray, feedback: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the rounded steps of a block of inputs, which starts with a whole pair, and their errors to feed on."""
    rounded, errors = np.empty_like(left), np.empty_like(left)
    for row in range(len(left)):
        wanted = left[row : row + 2] - feedback[:row, row : row + 2].T @ errors[:row]
        steps = wanted / scales
        if row % 2:
            rounded[row] = round_second(steps[0], rounded[row - 1])
        else:
            rounded[row] = round_first(steps[0], steps[1] if len(steps) > 1 else np.zeros_like(steps[0]))
        errors[row] = (wanted[0] - rounded[row] * scales) / feedback[row, row]
    return rounded, errors


class ActivationMoments:
    """Second moments of activations, measured for as many at a time as fit the memory set aside."""

    def __init__(self, directory: Path, sizes: Iterable[tuple[str, int]], text: str) -> None:
        """Measure in `directory`; `sizes` lists activations and their channels in the order they will be asked for."""
        self._directory, self._text = directory, text
        self._waiting = [(name, size) for name, size in dict(sizes).items() if size <= MOST_INPUTS]
        self._held: dict[str, Moments] = {}

    def of(self, name: str) -> Moments | None:
        """Return the moments of `name`; None for what is too wide."""
        while name not in self._held and any(name == waiting for waiting, _ in self._waiting):
            self._held = second_moments(self._directory, self._take(), self._text)
        return self._held.get(name)

    def _take(self) -> list[str]:
        names: list[str] = []
        total = 0
        while self._waiting:
            name, size = self._waiting[0]
            total += size * size * np.dtype(np.float64).itemsize
            if names and total > MOMENT_BYTES:
                break
            names.append(name)
            del self._waiting[0]
        return names
