"""Log probabilities of chosen tokens, as the model alone sees them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.engine.top_values import largest

LOWEST = -9999.0  # OpenAI's word for "never"; JSON has none for infinity


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A chosen token, and the `top_logprobs` most likely ones, best first, as (token id, log probability)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def token_logprob(logits: NDArray[np.float32], token_id: int, top: int) -> TokenLogprob:
    """Return the log probability of `token_id` under `logits` [vocab].

    As in vLLM these are the model's own logits: before biases, penalties, constraints and temperature.
    """
    values = logits.astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    best = largest(logits, top) if top else np.empty(0, np.int64)
    best = best[np.argsort(-values[best], kind="stable")]
    values = np.maximum(values, LOWEST)
    return TokenLogprob(token_id, float(values[token_id]), tuple((int(i), float(values[i])) for i in best))
