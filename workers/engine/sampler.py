"""Chooses the next token of each row with numpy. Rows never see each other, so a mix changes nobody's tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.sampling import SamplingParams
from workers.engine.model_runner import Logits

FIRST_CANDIDATES = 256
CANDIDATE_GROWTH = 8

Row = NDArray[np.float32]
Probabilities = NDArray[np.float64]
TokenIds = NDArray[np.int64]


class TokenCounts:
    """Which tokens a sequence has seen, kept only for sequences with a penalty. About 5 bytes per vocabulary entry."""

    def __init__(self, prompt_ids: Sequence[int], vocab_size: int) -> None:
        """Start with the prompt: it counts for the repetition penalty only."""
        self.seen: NDArray[np.bool_] = np.zeros(vocab_size, np.bool_)
        self.seen[np.asarray(prompt_ids, np.int64)] = True
        self.generated: Row = np.zeros(vocab_size, np.float32)

    def add(self, token_id: int) -> None:
        """Count one generated token."""
        self.seen[token_id] = True
        self.generated[token_id] += 1

    def penalise(self, row: Row, params: SamplingParams) -> None:
        """Apply the penalties to `row` in place, as vLLM defines them."""
        factor = np.float32(params.repetition_penalty)
        row[self.seen] = np.where(row[self.seen] > 0, row[self.seen] / factor, row[self.seen] * factor)
        row -= np.float32(params.frequency_penalty) * self.generated
        row -= np.float32(params.presence_penalty) * (self.generated > 0)


def _softmax(logits: Row) -> Probabilities:
    shifted = logits.astype(np.float64)
    np.subtract(shifted, shifted.max(), out=shifted)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum()
    return shifted


def _largest(values: NDArray[np.floating], count: int) -> TokenIds:
    """Return the indices of the `count` largest values, in index order: equal values never depend on the partition."""
    if count >= values.size:
        return np.arange(values.size)
    threshold = np.partition(values, values.size - count)[values.size - count]
    above = np.flatnonzero(values > threshold)
    ties = np.flatnonzero(values == threshold)[: count - above.size]
    return np.sort(np.concatenate((above, ties)))


def _nucleus(probabilities: Probabilities, top_p: float) -> TokenIds:
    """Return the smallest set of most likely tokens whose probabilities reach `top_p`, without sorting all of them."""
    count = FIRST_CANDIDATES
    total = probabilities.sum()
    while True:
        candidates = _largest(probabilities, count)
        ordered = candidates[np.argsort(-probabilities[candidates], kind="stable")]
        reached = np.cumsum(probabilities[ordered]) >= top_p * total
        if reached.any():
            return np.sort(ordered[: int(reached.argmax()) + 1])
        if candidates.size == probabilities.size:
            return candidates
        count *= CANDIDATE_GROWTH


class SequenceSampler:
    """Sampling state of one sequence: its own random stream and token counts."""

    def __init__(
        self, params: SamplingParams, prompt_ids: Sequence[int], vocab_size: int, end_ids: frozenset[int]
    ) -> None:
        """Take the parameters; `end_ids` are held back until `min_tokens` tokens are out."""
        self._params = params
        self._end_ids = [token_id for token_id in sorted(end_ids) if 0 <= token_id < vocab_size]
        self._num_generated = 0
        self._random = None if params.greedy else np.random.Generator(np.random.Philox(params.seed))
        penalised = params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
        self._counts = TokenCounts(prompt_ids, vocab_size) if penalised else None

    @property
    def takes_argmax(self) -> bool:
        """Whether the most likely token of the raw logits is the answer."""
        return self._random is None and self._counts is None and not self._holds_back_end

    @property
    def _holds_back_end(self) -> bool:
        return self._num_generated < self._params.min_tokens

    def record(self, token_id: int) -> None:
        """Note a chosen token."""
        self._num_generated += 1
        if self._counts is not None:
            self._counts.add(token_id)

    def choose(self, logits: Row) -> int:
        """Return the next token for `logits` [vocab], which are left as they are."""
        row = logits.copy()
        if self._holds_back_end:
            row[self._end_ids] = -np.inf
        if self._counts is not None:
            self._counts.penalise(row, self._params)
        return int(row.argmax()) if self._random is None else self._draw(row, self._random)

    def _draw(self, row: Row, random: np.random.Generator) -> int:
        candidates, params = np.arange(row.size), self._params
        if 0 < params.top_k < row.size:
            candidates = _largest(row, params.top_k)
        probabilities = _softmax(row[candidates] / np.float32(params.temperature))
        if params.top_p < 1:
            kept = _nucleus(probabilities, params.top_p)
            candidates, probabilities = candidates[kept], probabilities[kept]
        if params.min_p > 0:
            kept = np.flatnonzero(probabilities >= params.min_p * probabilities.max())
            candidates, probabilities = candidates[kept], probabilities[kept]
        cumulative = np.cumsum(probabilities)
        if not np.isfinite(cumulative[-1]):
            raise FloatingPointError("the parameters took the logits out of range")
        # A zero-width last step would be reachable by rounding; `side="right"` skips every zero-width step.
        index = np.searchsorted(cumulative, random.random() * cumulative[-1], side="right")
        return int(candidates[min(int(index), candidates.size - 1)])


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One token per row of a step batch; where `finite[i]` is false or `faults` has i, `token_ids[i]` means nothing."""

    token_ids: list[int]
    finite: list[bool]
    faults: dict[int, Exception]


def sample(logits: Logits, samplers: Sequence[SequenceSampler]) -> SampledTokens:
    """Choose a token for each row of `logits` [rows, vocab] and record it with the row's sampler."""
    rows = np.arange(len(samplers))
    best = logits.argmax(axis=1)
    # NaN counts as the maximum for argmax, so one look per row finds it, and +inf as well.
    finite: list[bool] = np.isfinite(logits[rows, best]).tolist()
    token_ids: list[int] = best.tolist()
    faults: dict[int, Exception] = {}
    for index, sampler in enumerate(samplers):
        if not finite[index]:
            continue
        try:
            if not sampler.takes_argmax:
                token_ids[index] = sampler.choose(logits[index])
            sampler.record(token_ids[index])
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one row's parameters stays in its row
            faults[index] = error
    return SampledTokens(token_ids, finite, faults)
