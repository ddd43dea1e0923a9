"""Markdown tables of a campaign, ready for docs/performance.md."""

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.campaign import Answer, medians
from benchmarks.sides.measurement import Figures
from benchmarks.workloads import SHARED_TOKENS

CURVE_TITLES = {
    "decode": "Decode, tokens per CPU-second, by rows",
    "prefill": "Prefill of one prompt, tokens per CPU-second, by prompt tokens",
    "long": "Long contexts, tokens per CPU-second: prefill / decode, by context x rows",
}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines)


def _distinct(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _of(answers: Sequence[Answer], row: str, column: str) -> Figures:
    return medians([a for a in answers if (a.measurement.row, a.measurement.column) == (row, column)])


def _rates(figures: Figures, names: Sequence[str]) -> str:
    return " / ".join(f"{figures[name]:.0f}" if name in figures else "-" for name in names) if figures else "-"


def _ratio(mine: Figures, other: Figures, names: Sequence[str]) -> str:
    pairs = [(mine.get(name), other.get(name)) for name in names]
    return " / ".join(f"{ours / theirs:.2f}" if ours and theirs else "-" for ours, theirs in pairs)


def curve_table(suite: str, answers: Sequence[Answer]) -> str:
    """Return the rates by row and side; then the ratio of the first side, ours, to each other."""
    names = {"decode": ["decode"], "prefill": ["prefill"], "long": ["prefill", "decode"]}[suite]
    rows = _distinct([a.measurement.row for a in answers])
    first, *others = _distinct([a.measurement.column for a in answers])
    body = []
    for row in rows:
        mine, theirs = _of(answers, row, first), [_of(answers, row, other) for other in others]
        rates = [_rates(figures, names) for figures in (mine, *theirs)]
        body.append([row, *rates, *(_ratio(mine, other, names) for other in theirs)])
    return markdown([suite, first, *others, *(f"ratio to {other}" for other in others)], body)


def mixed_table(answers: Sequence[Answer]) -> str:
    """Return jobs per CPU-minute of every setting, and each one's ratio to the best setting of every other side."""
    sides = _distinct([a.measurement.side for a in answers])
    best = {side: max((_jobs(a) for a in answers if a.measurement.side == side), default=0.0) for side in sides}
    peers = sides[1:]
    body = [
        [a.measurement.row, _number(a.figures, "jobs_per_cpu_minute"), _number(a.figures, "cpu_s"), _occupancy(a)]
        + [f"{_jobs(a) / best[peer]:.2f}" if best[peer] and _jobs(a) else "-" for peer in peers]
        for a in answers
    ]
    header = ["setting", "jobs per CPU-minute", "CPU-seconds", "slot occupancy until the queue is empty"]
    return markdown([*header, *(f"ratio to the best of {peer}" for peer in peers)], body)


def prefix_table(answers: Sequence[Answer]) -> str:
    """Return jobs per CPU-minute and the share of the shared prompt tokens that was not computed again."""
    body = [[a.measurement.row, _number(a.figures, "jobs_per_cpu_minute"), _saved(a)] for a in answers]
    return markdown(["setting", "jobs per CPU-minute", "shared prefill saved"], body)


def quality_table(answers: Sequence[Answer]) -> str:
    """Return perplexities and their distance from float32's."""
    found = {a.measurement.row: a.figures["perplexity"] for a in answers if a.figures}
    base = next((value for row, value in found.items() if "float32" in row), None)
    body = [[row, f"{value:.3f}", f"{value / base - 1:+.1%}" if base else "-"] for row, value in found.items()]
    return markdown(["engine and weights", "perplexity", "against float32"], body)


def _jobs(answer: Answer) -> float:
    return answer.figures.get("jobs_per_cpu_minute", 0.0)


def _number(figures: Figures, name: str) -> str:
    return f"{figures[name]:.1f}" if name in figures else "-"


def _occupancy(answer: Answer) -> str:
    return f"{answer.figures['occupancy']:.2f}" if "occupancy" in answer.figures else "-"


def _saved(answer: Answer) -> str:
    """Return the saved share of what a perfect cache saves: the instruction for every job but the first."""
    repeats = int(answer.measurement.arguments["count"]) - 1
    cached = answer.figures.get("cached_tokens")
    return "-" if cached is None or not repeats else f"{cached / (repeats * SHARED_TOKENS):.1%}"


TABLES: dict[str, tuple[str, Callable[[Sequence[Answer]], str]]] = {
    **{suite: (title, partial(curve_table, suite)) for suite, title in CURVE_TITLES.items()},
    "mixed": ("Mixed workload: prompts of 30-600 tokens, outputs of 16-128", mixed_table),
    "prefix": ("One instruction of 400 tokens over many documents", prefix_table),
    "quality": ("Perplexity of the held-out text", quality_table),
}


def section(answers: Sequence[Answer]) -> str:
    """Return the title, the table and the failures of a group of answers, which are of one suite."""
    if not answers:
        return ""
    title, table = TABLES[answers[0].measurement.suite]
    failures = [f"- {a.measurement.side}, {a.measurement.row}: {a.failure}" for a in answers if a.failure]
    return "\n".join([f"## {title}", "", table(answers), "", *_distinct(failures)])
