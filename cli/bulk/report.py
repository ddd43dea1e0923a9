"""The end of a run: a summary for people or programs, and what failed."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.bulk.progress import duration
from cli.bulk.tally import Tally


def summary(tally: Tally) -> dict[str, Any]:
    """Return the figures of a run; rates count what this run itself finished."""
    return {
        "documents": tally.total,
        "completed": tally.completed,
        "failed": tally.failed,
        "reused": tally.reused,
        "prompt_tokens": tally.prompt_tokens,
        "completion_tokens": tally.completion_tokens,
        "seconds": round(tally.seconds, 3),
        "jobs_per_second": round(tally.jobs_per_second, 3),
        "tokens_per_second": round(tally.tokens_per_second, 1),
        "entities": dict(sorted(tally.entities.items())),
        "failures": [{"document": name, "error": error} for name, error in tally.failures],
    }


def show(console: Console, tally: Tally) -> None:
    """Print the failures, then the summary table."""
    for name, error in tally.failures:
        console.print(Text(f"failed: {name}: {error}"), soft_wrap=True)
    hidden = tally.failed - len(tally.failures)
    if hidden:
        console.print(Text(f"and {hidden} more; the result file names them all"))
    table = Table(show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for label, value in _rows(tally):
        table.add_row(label, value)
    console.print(table)


def _rows(tally: Tally) -> list[tuple[str, str]]:
    rows = [
        ("documents", f"{tally.total:,}"),
        ("completed", f"{tally.completed:,}"),
        ("failed", f"{tally.failed:,}"),
        ("from an earlier run", f"{tally.reused:,}"),
        ("tokens in", f"{tally.prompt_tokens:,}"),
        ("tokens out", f"{tally.completion_tokens:,}"),
        ("wall time", duration(tally.seconds)),
        ("jobs/s", f"{tally.jobs_per_second:.2f}"),
        ("tokens/s", f"{tally.tokens_per_second:.1f}"),
    ]
    redacted = [(f"redacted {kind}", f"{count:,}") for kind, count in sorted(tally.entities.items())]
    return rows + redacted
