"""Beam search in a few lines of numpy: what the engine's must return."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Logits = Callable[[list[int]], NDArray[np.floating]]


@dataclass(frozen=True)
class BeamReference:
    """Stops as soon as `beams` outputs have ended; lengths count the prompt, without the end token."""

    logits: Logits
    eos: int
    beams: int
    max_tokens: int
    length_penalty: float = 1.0
    min_tokens: int = 0

    def search(self, prompt: list[int]) -> list[list[int]]:
        """Return the outputs, best first."""
        running: list[tuple[float, list[int]]] = [(0.0, [])]
        ended: list[tuple[float, list[int]]] = []
        for _ in range(self.max_tokens):
            candidates = sorted(self._candidates(prompt, running), key=lambda item: -item[0])[: 2 * self.beams]
            best = candidates[: self.beams]
            ended += [self._scored(prompt, total, ids[:-1]) for total, ids in best if ids[-1] == self.eos]
            ended = sorted(ended, key=lambda item: -item[0])[: self.beams]
            if len(ended) == self.beams:
                return [ids for _, ids in ended]
            running = [(total, ids) for total, ids in candidates if ids[-1] != self.eos][: self.beams]
        ended += [self._scored(prompt, total, ids) for total, ids in running]
        return [ids for _, ids in sorted(ended, key=lambda item: -item[0])[: self.beams]]

    def _candidates(self, prompt: list[int], running: list[tuple[float, list[int]]]) -> list[tuple[float, list[int]]]:
        found = []
        for total, ids in running:
            row = np.asarray(self.logits(prompt + ids), np.float64).copy()
            if len(ids) < self.min_tokens:
                row[self.eos] = -1e30
            row -= row.max()
            row -= np.log(np.exp(row).sum())
            likely = np.argsort(-row)[: 2 * self.beams]
            found += [(total + float(row[token]), [*ids, int(token)]) for token in likely]
        return found

    def _scored(self, prompt: list[int], total: float, ids: list[int]) -> tuple[float, list[int]]:
        return total / float(len(prompt) + len(ids)) ** self.length_penalty, ids
