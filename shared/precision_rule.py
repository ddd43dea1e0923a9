"""Which precision suits a machine: rowwise int8 or block int4, from measured speeds, slots and memory."""

from dataclasses import dataclass

from shared.cpu import Cpu
from shared.model_manifest import Manifest, Precision

# Time of int4 over time of int8 for one large layer on one core, by rows of the step batch: above 1, int8 is faster.
# With VNNI: 3584 x 9472. On AVX2 (Zen 3): 3584 x 4736, best of 12. ARM is not measured and judged by its instructions.
_DOT_PRODUCT = {1: 0.49, 4: 1.03, 8: 1.60, 16: 2.03, 32: 2.46}
_PLAIN = {1: 0.58, 2: 0.81, 3: 1.29, 4: 1.44, 8: 1.55, 16: 1.56, 32: 1.74}
# Bytes per weight with scales; embeddings make small models a little larger.
_BYTES: dict[Precision, float] = {"int8": 1.05, "int4": 0.6}


@dataclass(frozen=True)
class Advice:
    """A precision and, in one sentence, why."""

    precision: Precision
    reason: str


def speed_ratio(cpu: Cpu, rows: int) -> float:
    """Return how many times as fast as int4 int8 computes `rows` rows, by the next smaller batch measured."""
    measured = _DOT_PRODUCT if cpu.has_int8_dot_product else _PLAIN
    return measured[max(size for size in measured if size <= rows)]


def weight_bytes(manifest: Manifest, precision: Precision) -> int:
    """Return the bytes of the model in `precision`: exact for what `manifest` describes, else an estimate."""
    if manifest.precision == precision:
        return manifest.total_bytes
    return round(manifest.parameters * _BYTES.get(precision, 4.0))


def recommend(cpu: Cpu, slots: int, manifest: Manifest | None = None, room: int | None = None) -> Advice:
    """Choose for steps of up to `slots` rows and `room` bytes for the weights of one worker (None: enough)."""
    if manifest is not None and room is not None:
        wanted, small = weight_bytes(manifest, "int8"), weight_bytes(manifest, "int4")
        if small <= room < wanted:
            return Advice(
                "int4", f"int8 weights take {wanted / 1e6:,.0f} MB and a worker has {room / 1e6:,.0f} MB for them"
            )
    ratio, instructions = speed_ratio(cpu, slots), _instructions(cpu)
    if ratio >= 1:
        reason = (
            f"{slots} slots share a step, and at that many rows int8 is {ratio:.1f}x as fast as int4 {instructions}"
        )
        return Advice("int8", reason)
    return Advice("int4", f"with {slots} slots int4 is {1 / ratio:.1f}x as fast as int8 {instructions}, if less exact")


def _instructions(cpu: Cpu) -> str:
    if cpu.architecture not in {"x86_64", "AMD64"}:
        return f"(measured on x86, not on {cpu.architecture})"
    return "with VNNI" if cpu.has_int8_dot_product else "on AVX2"
