"""Makes a model directory of another precision out of a float32 one, and measures what that costs."""

import shutil
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from shared.model_manifest import Precision
from workers.modelstore.block_int4 import BlockInt4
from workers.modelstore.compact_embeddings import compact_embeddings
from workers.modelstore.feedback_rounding import ActivationMoments
from workers.modelstore.genai_import import GenaiDirectory
from workers.modelstore.graph import save
from workers.modelstore.linear_nodes import Weights
from workers.modelstore.quality import CALIBRATION_TEXT, Score, score
from workers.modelstore.rotation import Rotator
from workers.modelstore.rowwise_int8 import RoundedWeight, RowwiseInt8
from workers.modelstore.sensitivity import layer_errors
from workers.modelstore.smoothing import Smoother, activation_peaks
from workers.modelstore.weight_pairs import WEIGHT_RANGE

Report = Callable[[str], None]
FOLDING_TOLERANCE = 1e-3
_INT4_RANGE = 7


@dataclass(frozen=True)
class Quantized:
    """What was done to the weights."""

    weight_bits: int
    methods: tuple[str, ...] = ()
    kept_float: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Even:
    """A float32 model that computes what the source does, with weights and activations easier to round."""

    path: Path
    methods: tuple[str, ...]


class Quantizer:
    """Quantises one float32 model, as often as asked; `reference` is its score on the calibration text."""

    def __init__(self, source: GenaiDirectory, reference: Score, report: Report, workspace: Path) -> None:
        """Read from `source`, tell `report` what goes on, keep what attempts share in the directory `workspace`."""
        self._source, self._reference, self._report, self._workspace = source, reference, report, workspace
        self._text = CALIBRATION_TEXT.read_text(encoding="utf-8")
        self._rounded: dict[str, RoundedWeight] = {}

    def write(self, target: Path, precision: Precision, keep_float: AbstractSet[str] = frozenset()) -> Quantized:
        """Write the model into the directory `target` in `precision` (int8 or int4), `keep_float` left as it is.

        Raises:
            ModelUnsupportedError: a layer does not fit the block size, or the model computes NaN.
        """
        self._source.copy_to(target, with_weights=False)
        kept = tuple(sorted(keep_float))
        if precision == "int4":
            return Quantized(4, kept_float=self._write_int4(target, kept))
        return Quantized(8, self._write_int8(target, kept), kept)

    def errors(self, precision: Precision) -> dict[str, float]:
        """Return how much each linear layer suffers in `precision`, by the name of its output."""
        if precision == "int4":
            return layer_errors(self._source.path, self._text, _INT4_RANGE)
        return layer_errors(self._even.path, self._text, WEIGHT_RANGE)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Number of weights of each linear layer, by the name of its output."""
        weights = Weights(onnx.load(self._source.config.path).graph)
        return {linear.output: weights.matrix(linear).size for linear in weights.linear_nodes()}

    @property
    def _name(self) -> str:
        return self._source.config.path.name

    def _write_int4(self, target: Path, kept: tuple[str, ...]) -> tuple[str, ...]:
        self._report("quantising blocks to int4")
        model = onnx.load(self._source.config.path)
        BlockInt4(model, keep_float=set(kept)).rewrite()
        save(model, target, self._name)
        return kept

    def _write_int8(self, target: Path, kept: tuple[str, ...]) -> tuple[str, ...]:
        model = onnx.load(self._even.path / self._name)
        self._report("quantising rows to int8")
        RowwiseInt8(model, self._moments(model), keep_float=set(kept), rounded=self._rounded).rewrite()
        compact_embeddings(model)
        save(model, target, self._name)
        return (*self._even.methods, "error feedback")

    def _moments(self, model: onnx.ModelProto) -> ActivationMoments:
        weights = Weights(model.graph)
        sizes = [(linear.inputs, len(weights.matrix(linear))) for linear in weights.linear_nodes()]
        return ActivationMoments(self._even.path, sizes, self._text)

    @cached_property
    def _even(self) -> _Even:
        """Rotated and smoothed; the source itself if that alters what it computes."""
        model, path = onnx.load(self._source.config.path), self._workspace
        self._source.copy_to(path, with_weights=False)
        rotator = Rotator(model)
        rotator.fold()
        smoother = Smoother(model, rotated=rotator.applicable)
        self._report(f"calibrating {len(smoother.activations)} activations")
        smoother.fold(activation_peaks(self._source.path, smoother.activations, self._text))
        save(model, path, self._name)
        before, after = self._reference.perplexity, score(path, self._text).perplexity
        if abs(after / before - 1) <= FOLDING_TOLERANCE:
            return _Even(path, ("rotation", "smoothing") if rotator.applicable else ("smoothing",))
        self._report(f"folding would change the float32 model (perplexity {before:.3f} to {after:.3f}): left out")
        shutil.rmtree(path)
        return _Even(self._source.path, ())
