"""Makes a model directory of another precision out of a float32 one, and measures what that costs."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from shared.cpu import FULL_WEIGHT_RANGE
from shared.model_manifest import Precision
from workers.modelstore.block_int4 import BlockInt4
from workers.modelstore.feedback_rounding import ActivationMoments
from workers.modelstore.genai_import import GenaiDirectory
from workers.modelstore.graph import save
from workers.modelstore.linear_nodes import Weights
from workers.modelstore.quality import CALIBRATION_TEXT, Score, score
from workers.modelstore.rotation import Rotator
from workers.modelstore.rowwise_int8 import RowwiseInt8
from workers.modelstore.smoothing import Smoother, activation_peaks

Report = Callable[[str], None]
FOLDING_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Quantized:
    """What was done to the weights."""

    weight_bits: int
    methods: tuple[str, ...] = ()


class Quantizer:
    """Quantises one float32 model; `reference` is its score on the calibration text."""

    def __init__(self, source: GenaiDirectory, reference: Score, report: Report) -> None:
        """Read from `source`; tell `report` what goes on."""
        self._source, self._reference, self._report = source, reference, report
        self._text = CALIBRATION_TEXT.read_text(encoding="utf-8")

    def write(self, target: Path, precision: Precision, weight_range: int) -> Quantized:
        """Write the model into the directory `target` in `precision` (int8 or int4).

        Raises:
            ModelUnsupportedError: a layer does not fit the block size, or the model computes NaN.
        """
        self._source.copy_to(target, with_weights=False)
        return self._write_int4(target) if precision == "int4" else self._write_int8(target, weight_range)

    @property
    def _name(self) -> str:
        return self._source.config.path.name

    def _write_int4(self, target: Path) -> Quantized:
        self._report("quantising blocks to int4")
        model = onnx.load(self._source.config.path)
        BlockInt4(model).rewrite()
        save(model, target, self._name)
        return Quantized(weight_bits=4)

    def _write_int8(self, target: Path, weight_range: int) -> Quantized:
        methods = self._write_even_float(target)
        model, moments = onnx.load(target / self._name), None
        bits = 8 if weight_range == FULL_WEIGHT_RANGE else 7
        if bits < 8:  # noqa: PLR2004  # rounding to full bytes costs less than a tenth of what activations cost
            moments, methods = self._moments(target, model), (*methods, "error feedback")
        self._report(f"quantising rows to int8, weights within {weight_range}")
        RowwiseInt8(model, weight_range, moments).rewrite()
        save(model, target, self._name)
        return Quantized(bits, methods)

    def _moments(self, target: Path, model: onnx.ModelProto) -> ActivationMoments:
        weights = Weights(model.graph)
        sizes = [(linear.inputs, len(weights.matrix(linear))) for linear in weights.linear_nodes()]
        return ActivationMoments(target, sizes, self._text)

    def _write_even_float(self, target: Path) -> tuple[str, ...]:
        """Write the float32 model, rotated and smoothed, into `target`; unchanged if that alters what it computes."""
        model = onnx.load(self._source.config.path)
        rotator = Rotator(model)
        rotator.fold()
        smoother = Smoother(model, rotated=rotator.applicable)
        self._report(f"calibrating {len(smoother.activations)} activations")
        smoother.fold(activation_peaks(self._source.path, smoother.activations, self._text))
        save(model, target, self._name)
        before, after = self._reference.perplexity, score(target, self._text).perplexity
        if abs(after / before - 1) <= FOLDING_TOLERANCE:
            return ("rotation", "smoothing") if rotator.applicable else ("smoothing",)
        self._report(f"folding would change the float32 model (perplexity {before:.3f} to {after:.3f}): left out")
        for file in self._source.weight_files:
            shutil.copyfile(self._source.path / file, target / file)
        return ()
