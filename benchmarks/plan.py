"""Which measurements make up each suite, and about how long each takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import Any

from benchmarks.contestants import Contestant
from benchmarks.workloads import SHARED_TOKENS, output_tokens, prompt_tokens, workload

# The most telling first: what the budget cuts off stands at the end.
SUITES = ("decode", "mixed", "long", "prefix", "quality", "prefill")
DECODE_ROWS = (1, 8, 16, 32, 64)
PREFILL_TOKENS = (37, 128, 512, 1024)
LONG_CONTEXTS = (512, 1024)
LONG_ROWS = 16
SHORT_PROMPT = 37
SLOTS = (32, 64)
PREFIX_SLOTS = 32
SUITE_OF = {"mixed": "mixed", "shared-prefix": "prefix"}
# Tokens per CPU-second on a core without VNNI, for estimates only: prefill, decode alone, decode in batches.
RATES = {"engine": (550, 60, 300), "genai": (220, 75, 160), "openvino": (210, 30, 150)}
LOAD_S = 8


@dataclass(frozen=True, slots=True)
class Measurement:
    """One question to one side. `row` and `column` place its answer in the suite's table."""

    suite: str
    row: str
    column: str
    side: str
    name: str
    arguments: Mapping[str, Any]
    estimate_s: float
    repeats: bool = True


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: tokens decoded per measurement and jobs per workload."""

    decode_tokens: int = 320
    mixed_jobs: int = 80
    prefix_jobs: int = 200
    prefix_jobs_of_peers: int = 100
    prefix_jobs_uncached: int = 20
    decode_rows: tuple[int, ...] = DECODE_ROWS
    prefill_tokens: tuple[int, ...] = PREFILL_TOKENS
    long_contexts: tuple[int, ...] = LONG_CONTEXTS
    slots: tuple[int, ...] = SLOTS


# Without peers there is less time.
OWN = Scale(long_contexts=(512,), slots=(32,))
QUICK = Scale(32, 6, 6, 4, 3, (1, 8), (37, 128), (512,), (32,))


def steps_for(rows: int, tokens: int) -> int:
    """Return decode steps such that about `tokens` tokens are decoded, and at least 4 steps."""
    return max(4, min(48, tokens // rows))


def estimate_s(kind: str, prompt: float, output: float, *, batched: bool) -> float:
    """Return about the CPU seconds `kind` takes for that many tokens."""
    prefill, alone, batch = RATES[kind]
    return prompt / prefill + output / (batch if batched else alone)


def _curve(side: Contestant, suite: str, row: str, shape: tuple[int, int, int]) -> Measurement:
    rows, tokens, steps = shape
    arguments = MappingProxyType({"rows": rows, "tokens": tokens, "steps": steps})
    cost = estimate_s(side.kind, rows * tokens, rows * steps, batched=rows > 1)
    return Measurement(suite, row, side.label, side.label, "curve", arguments, cost)


def decode_curve(side: Contestant, scale: Scale) -> list[Measurement]:
    """Decode at each number of rows after a short prompt."""
    return [
        _curve(side, "decode", str(rows), (rows, SHORT_PROMPT, steps_for(rows, scale.decode_tokens)))
        for rows in scale.decode_rows
    ]


def prefill_curve(side: Contestant, scale: Scale) -> list[Measurement]:
    """Prefill of one prompt at each length."""
    return [_curve(side, "prefill", str(tokens), (1, tokens, 0)) for tokens in scale.prefill_tokens]


def long_contexts(side: Contestant, scale: Scale) -> list[Measurement]:
    """Prefill and decode of 16 rows with long prompts; one run is long enough."""
    shape = (LONG_ROWS, steps_for(LONG_ROWS, scale.decode_tokens))
    curves = [_curve(side, "long", f"{n} x {LONG_ROWS}", (shape[0], n, shape[1])) for n in scale.long_contexts]
    return [replace(curve, repeats=False) for curve in curves]


def mixed_workload(side: Contestant, scale: Scale) -> list[Measurement]:
    """Jobs per CPU-minute at each number of slots; onnxruntime-genai takes one job at a time."""
    slots = (1,) if side.kind == "genai" else scale.slots
    return [_jobs(side, "mixed", scale.mixed_jobs, seqs) for seqs in slots]


def shared_prefix(side: Contestant, scale: Scale) -> list[Measurement]:
    """Jobs behind one instruction, with the prefix cache and without (fewer: each takes as long as the first)."""
    if side.kind not in {"engine", "openvino"}:
        return []
    cached = scale.prefix_jobs if side.kind == "engine" else scale.prefix_jobs_of_peers
    return [
        _jobs(side, "shared-prefix", cached, PREFIX_SLOTS, prefix_cache=True),
        _jobs(side, "shared-prefix", scale.prefix_jobs_uncached, PREFIX_SLOTS),
    ]


def _jobs(side: Contestant, name: str, count: int, seqs: int, *, prefix_cache: bool = False) -> Measurement:
    jobs = workload(name, count)
    computed = prompt_tokens(jobs) - (SHARED_TOKENS * (count - 1) if prefix_cache else 0)
    cost = LOAD_S + estimate_s(side.kind, computed, output_tokens(jobs), batched=seqs > 1)
    arguments = {"workload": name, "count": count, "max_num_seqs": seqs, "prefix_cache": prefix_cache}
    what = f"prefix cache {'on' if prefix_cache else 'off'}" if name == "shared-prefix" else f"{seqs} at once"
    row = f"{side.label}, {what}, {count} jobs"
    return Measurement(SUITE_OF[name], row, "", side.label, "jobs", MappingProxyType(arguments), cost, repeats=False)


def quality(side: Contestant, token_ids: list[int]) -> list[Measurement]:
    """Perplexity of the held-out text."""
    cost = LOAD_S + estimate_s(side.kind, 0, len(token_ids), batched=False)
    arguments = MappingProxyType({"token_ids": token_ids})
    return [Measurement("quality", side.label, "", side.label, "perplexity", arguments, cost, repeats=False)]


MAKERS = {
    "decode": decode_curve,
    "prefill": prefill_curve,
    "long": long_contexts,
    "mixed": mixed_workload,
    "prefix": shared_prefix,
}


def alternating(lists: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    """Return the first of every list, then the second of every list, and so on."""
    return [item for item in chain.from_iterable(zip_longest(*lists)) if item is not None]


def plan(sides: Sequence[Contestant], suites: Iterable[str], scale: Scale, text: list[int]) -> list[list[Measurement]]:
    """Return one group of measurements per suite; the sides alternate within a group."""
    return [
        [item for side in sides for item in quality(side, text)]
        if suite == "quality"
        else alternating([MAKERS[suite](side, scale) for side in sides if not side.quality_only])
        for suite in suites
    ]
