"""Perplexity and agreement of a model on a fixed text: how much an import or a quantisation costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from tokenizers import Tokenizer

from shared.errors import ModelUnsupportedError
from workers.engine.decoder_config import DecoderConfig
from workers.engine.scoring import ScoringSession
from workers.modelstore.graph import with_all_logits
from workers.modelstore.overflow_scan import Probes

CALIBRATION_TEXT = Path(__file__).with_name("calibration.txt")
WINDOW = 256


@dataclass(frozen=True)
class Score:
    """Perplexity over all windows, the most likely next token at every position, the largest magnitude on the way."""

    perplexity: float
    next_tokens: NDArray[np.int64]
    largest_activation: float = 0.0

    def agreement(self, other: "Score") -> float:
        """Return the share of positions where both expect the same next token."""
        return float(np.mean(self.next_tokens == other.next_tokens))


def windows(directory: Path, text: str) -> list[list[int]]:
    """Tokenise `text` and cut it into windows of at most 256 tokens, each scored from an empty KV cache."""
    ids = Tokenizer.from_file(str(directory / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    size = min(WINDOW, DecoderConfig.read(directory).context_length)
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def _load(directory: Path) -> onnx.ModelProto:
    return with_all_logits(onnx.load(DecoderConfig.read(directory).path, load_external_data=False))


def open_session(directory: Path, extra_outputs: Sequence[str] = ()) -> ScoringSession:
    """Load the model in `directory` with the logits of all positions, and `extra_outputs` besides."""
    model = _load(directory)
    for name in extra_outputs:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return ScoringSession(model.SerializeToString(), directory)


def _negative_log_likelihood(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> float:
    values = logits.astype(np.float64)
    peak = values.max(axis=-1, keepdims=True)
    totals = np.log(np.exp(values - peak).sum(axis=-1)) + peak[:, 0]
    return float((totals - values[np.arange(len(targets)), targets]).sum())


def score(directory: Path, text: str) -> Score:
    """Measure the model in `directory` on `text`.

    Raises:
        ModelUnsupportedError: a linear layer or the logits are NaN or infinite, or only the last position has logits.
    """
    model = _load(directory)
    probes = Probes(model)
    session, total, scored = ScoringSession(model.SerializeToString(), directory), 0.0, 0
    next_tokens: list[NDArray[np.int64]] = []
    largest = 0.0
    for ids in windows(directory, text):
        logits, *figures = session.run(ids, ["logits", *probes.outputs])
        if len(logits) != len(ids):
            raise ModelUnsupportedError(f"{directory.name} was built with prune_lm_head; build it without")
        if not np.isfinite(logits).all():
            raise ModelUnsupportedError(f"{directory} computes NaN or infinite logits; its weights are not usable")
        largest = max(largest, probes.largest(figures), float(np.abs(logits).max()))
        total += _negative_log_likelihood(logits[:-1], np.asarray(ids[1:], np.int64))
        scored += len(ids) - 1
        next_tokens.append(logits.argmax(axis=-1))
    return Score(float(np.exp(total / scored)), np.concatenate(next_tokens), largest)
