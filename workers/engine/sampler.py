"""Chooses the next token of each row with numpy. Rows never see each other, so a mix changes nobody's tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.sampling import SamplingParams
from workers.engine.logprobs import TokenLogprob, token_logprob
from workers.engine.model_runner import Logits
from workers.engine.structured import Constraint
from workers.engine.top_values import largest

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


def _nucleus(probabilities: Probabilities, top_p: float) -> TokenIds:
    """Return the smallest set of most likely tokens whose probabilities reach `top_p`, without sorting all of them."""
    count = FIRST_CANDIDATES
    total = probabilities.sum()
    while True:
        candidates = largest(probabilities, count)
        ordered = candidates[np.argsort(-probabilities[candidates], kind="stable")]
        reached = np.cumsum(probabilities[ordered]) >= top_p * total
        if reached.any():
            return np.sort(ordered[: int(reached.argmax()) + 1])
        if candidates.size == probabilities.size:
            return candidates
        count *= CANDIDATE_GROWTH


class LogitBias:
    """What a request adds to the logits of some tokens."""

    def __init__(self, biases: Mapping[int, float], vocab_size: int) -> None:
        """Take token id -> bias; ids beyond the vocabulary bias nothing."""
        known = {token_id: bias for token_id, bias in biases.items() if token_id < vocab_size}
        self._ids: TokenIds = np.array(list(known), np.int64)
        self._values: Row = np.array(list(known.values()), np.float32)

    def add(self, row: Row) -> None:
        """Add to `row` in place."""
        row[self._ids] += self._values


class SequenceSampler:
    """Sampling state of one sequence: its own random stream, token counts and constraint."""

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        vocab_size: int,
        end_ids: frozenset[int],
        constraint: Constraint | None = None,
    ) -> None:
        """Take the parameters; `end_ids` are held back until `min_tokens` tokens are out."""
        self.params = params
        self._end_ids = [token_id for token_id in sorted(end_ids) if 0 <= token_id < vocab_size]
        self._num_generated = 0
        self._random = None if params.greedy else np.random.Generator(np.random.Philox(params.seed))
        penalised = params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
        self._counts = TokenCounts(prompt_ids, vocab_size) if penalised else None
        self._bias = LogitBias(params.logit_bias, vocab_size) if params.logit_bias else None
        self._constraint = constraint

    @property
    def takes_argmax(self) -> bool:
        """Whether the most likely token of the raw logits is the answer."""
        shaped = self._counts is not None or self._bias is not None or self._constraint is not None
        return self._random is None and not shaped and not self._holds_back_end

    @property
    def _holds_back_end(self) -> bool:
        return self._num_generated < self.params.min_tokens

    def record(self, token_id: int) -> None:
        """Note a chosen token."""
        self._num_generated += 1
        if self._counts is not None:
            self._counts.add(token_id)
        if self._constraint is not None:
            self._constraint.commit(token_id)

    def choose(self, logits: Row) -> int:
        """Return the next token for `logits` [vocab], which are left as they are.

        Raises:
            InvalidInputError: the constraint turned out too complex.
            FloatingPointError: the parameters took the logits out of range.
        """
        row = self._shaped(logits)
        if self._constraint is None:
            return int(row.argmax()) if self._random is None else self._draw(row, np.arange(row.size), self._random)
        token_id = self._pick(row, self._constraint.allowed())
        return self._constraint.settle(token_id, self.params.max_tokens - self._num_generated)

    def _shaped(self, logits: Row) -> Row:
        row = logits.copy()
        if self._counts is not None:
            self._counts.penalise(row, self.params)
        if self._bias is not None:
            self._bias.add(row)
        if self._holds_back_end:
            row[self._end_ids] = -np.inf
        return row

    def _pick(self, row: Row, candidates: TokenIds) -> int:
        if self._random is None:
            return int(candidates[row[candidates].argmax()])
        return self._draw(row, candidates, self._random)

    def _draw(self, row: Row, candidates: TokenIds, random: np.random.Generator) -> int:
        params = self.params
        if 0 < params.top_k < candidates.size:
            candidates = candidates[largest(row[candidates], params.top_k)]
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
    """One token per row of a step batch; where `finite[i]` is false or `faults` has i, `token_ids[i]` means nothing.

    `logprobs` has the rows that asked for them.
    """

    token_ids: list[int]
    finite: list[bool]
    faults: dict[int, Exception]
    logprobs: dict[int, TokenLogprob]


def sample(logits: Logits, samplers: Sequence[SequenceSampler]) -> SampledTokens:
    """Choose a token for each row of `logits` [rows, vocab] and record it with the row's sampler."""
    rows = np.arange(len(samplers))
    best = logits.argmax(axis=1)
    # NaN counts as the maximum for argmax, so one look per row finds it, and +inf as well.
    finite: list[bool] = np.isfinite(logits[rows, best]).tolist()
    sampled = SampledTokens(best.tolist(), finite, {}, {})
    for index, sampler in enumerate(samplers):
        if not finite[index]:
            continue
        try:
            _sample_row(logits[index], sampler, index, sampled)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one row's parameters stays in its row
            sampled.faults[index] = error
    return sampled


def _sample_row(logits: Row, sampler: SequenceSampler, index: int, sampled: SampledTokens) -> None:
    if not sampler.takes_argmax:
        sampled.token_ids[index] = sampler.choose(logits)
    token_id = sampled.token_ids[index]
    sampler.record(token_id)
    if sampler.params.logprobs:
        sampled.logprobs[index] = token_logprob(logits, token_id, sampler.params.top_logprobs)
