"""Makes a model directory of another precision out of a float32 one, and measures what that costs."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from shared.cpu import FULL_WEIGHT_RANGE
from shared.model_manifest import Precision
from workers.modelstore.block_int4 import BlockInt4
from workers.modelstore.genai_import import GenaiDirectory
from workers.modelstore.graph import save
from workers.modelstore.quality import CALIBRATION_TEXT, Score, score
from workers.modelstore.rowwise_int8 import RowwiseInt8
from workers.modelstore.smoothing import Smoother, activation_peaks

Report = Callable[[str], None]
FOLDING_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Quantized:
    """What was done to the weights."""

    weight_bits: int
    smoothed: bool


class Quantizer:
    """Quantises one float32 model; `reference` is its score on the calibration text."""

    def __init__(self, source: GenaiDirectory, reference: Score, report: Report) -> None:
        """Read from `source`; tell `report` what goes on."""
        self._source, self._reference, self._report = source, reference, report

    def write(self, target: Path, precision: Precision, weight_range: int) -> Quantized:
        """Write the model into the directory `target` in `precision` (int8 or int4).

        Raises:
            ModelUnsupportedError: a layer does not fit the block size, or the model computes NaN.
        """
        self._source.copy_to(target, with_weights=False)
        if precision == "int4":
            return self._write_int4(target)
        smoothed = self._smooth(target)
        self._report(f"quantising rows to int8, weights within {weight_range}")
        model = onnx.load(target / self._name)
        RowwiseInt8(model, weight_range).rewrite()
        save(model, target, self._name)
        return Quantized(8 if weight_range == FULL_WEIGHT_RANGE else 7, smoothed)

    @property
    def _name(self) -> str:
        return self._source.config.path.name

    def _write_int4(self, target: Path) -> Quantized:
        self._report("quantising blocks to int4")
        model = onnx.load(self._source.config.path)
        BlockInt4(model).rewrite()
        save(model, target, self._name)
        return Quantized(weight_bits=4, smoothed=False)

    def _smooth(self, target: Path) -> bool:
        """Write the smoothed float32 model into `target`; the unchanged one if folding alters what it computes."""
        text = CALIBRATION_TEXT.read_text(encoding="utf-8")
        model = onnx.load(self._source.config.path)
        smoother = Smoother(model)
        self._report(f"calibrating {len(smoother.activations)} activations")
        smoother.fold(activation_peaks(self._source.path, smoother.activations, text))
        save(model, target, self._name)
        before, after = self._reference.perplexity, score(target, text).perplexity
        if abs(after / before - 1) <= FOLDING_TOLERANCE:
            return True
        self._report(f"smoothing would change the float32 model (perplexity {before:.3f} to {after:.3f}): left out")
        for file in self._source.weight_files:
            shutil.copyfile(self._source.path / file, target / file)
        return False
