"""What a quantisation may cost before the import is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ModelUnsupportedError
from shared.model_manifest import Precision, Quality
from workers.modelstore.quality import CALIBRATION_TEXT, Score, score
from workers.modelstore.quantize import Quantized, Quantizer, Report
from workers.modelstore.sensitivity import layers_to_keep

# Shares of perplexity. Rowwise int8 costs below 2 % on models that take it well, so 3 % tells that something is wrong.
# int4 is asked for by name by those who know that it costs: +31 % on the default model, and there noted only.
DEFAULT_MAX_LOSS: Mapping[Precision, float | None] = {"fp32": None, "int8": 0.03, "int4": None}
_PERCENT = 100


@dataclass(frozen=True)
class QualityGate:
    """The largest loss of perplexity against float32, as a share; None lets everything pass. `forced` overrides."""

    max_loss: float | None = None
    forced: bool = False

    @classmethod
    def of(cls, precision: Precision, max_loss_percent: float | None, *, force: bool) -> "QualityGate":
        """Take the user's figure, else the default of `precision`."""
        default = DEFAULT_MAX_LOSS[precision]
        return cls(default if max_loss_percent is None else max_loss_percent / _PERCENT, force)

    def holds(self, perplexity: float, reference: float | None) -> bool:
        """Whether `perplexity` is near enough to that of float32; True where either is not known."""
        return self.max_loss is None or reference is None or perplexity / reference - 1 <= self.max_loss

    def accepts(self, quality: Quality | None) -> bool:
        """Whether a version with this quality may be installed."""
        return self.forced or quality is None or self.holds(quality.perplexity, quality.perplexity_fp32)

    def check(self, quality: Quality) -> None:
        """Refuse what costs too much.

        Raises:
            ModelUnsupportedError: the loss is over the limit and nothing forces it.
        """
        if self.max_loss is None or quality.perplexity_fp32 is None or self.accepts(quality):
            return
        loss = quality.perplexity / quality.perplexity_fp32 - 1
        raise ModelUnsupportedError(
            f"perplexity rises by {loss:.1%} ({quality.perplexity_fp32:.2f} to {quality.perplexity:.2f}), more than the"
            f" {self.max_loss:.1%} allowed, even with the most sensitive layers in float32; choose --precision fp32,"
            " allow more with --max-loss PERCENT, or install it all the same with --force"
        )


class GatedQuantizer:
    """Quantises, and where the gate does not let that through, again with the most sensitive layers in float32."""

    def __init__(self, quantizer: Quantizer, gate: QualityGate, report: Report) -> None:
        """Take the parts; nothing runs yet."""
        self._quantizer, self._gate, self._report = quantizer, gate, report
        self._text = CALIBRATION_TEXT.read_text(encoding="utf-8")

    def write(self, target: Path, precision: Precision, before: Score) -> tuple[Quantized, Score]:
        """Write the first attempt the gate lets through, else the last one; return it with its score.

        A forced import takes the first attempt: who forces it wants plain layers.
        """
        done, result = self._attempt(target, precision, frozenset())
        if self._gate.forced or self._gate.holds(result.perplexity, before.perplexity):
            return done, result
        errors = self._quantizer.errors(precision)
        for kept in layers_to_keep(errors, self._quantizer.sizes):
            loss = result.perplexity / before.perplexity - 1
            self._report(f"perplexity rises by {loss:.1%}: trying with {len(kept)} sensitive layers in float32")
            done, result = self._attempt(target, precision, kept)
            if self._gate.holds(result.perplexity, before.perplexity):
                break
        return done, result

    def _attempt(self, target: Path, precision: Precision, kept: frozenset[str]) -> tuple[Quantized, Score]:
        done = self._quantizer.write(target, precision, kept)
        self._report("measuring the result")
        return done, score(target, self._text)
