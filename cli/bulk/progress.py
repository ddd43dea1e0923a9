"""Live progress: a bar on a terminal, a line every few seconds elsewhere."""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from cli.bulk.tally import Tally

LINE_INTERVAL_SECONDS = 5.0


class BarWatcher:
    """A rich progress bar with figures behind it."""

    def __init__(self, console: Console, total: int) -> None:
        """Draw on `console`; `total` documents fill the bar."""
        figures = TextColumn("{task.fields[figures]}", markup=False)
        self.bar = Progress(BarColumn(bar_width=24), MofNCompleteColumn(), figures, console=console)
        self._task = self.bar.add_task("documents", total=total, figures="")

    def show(self, tally: Tally, trouble: str | None) -> None:
        """Redraw."""
        self.bar.update(self._task, completed=tally.done, figures=figures_of(tally, trouble))


class LineWatcher:
    """Plain lines, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        """Write to `console`."""
        self._console = console
        self._next = 0.0
        self._last = ""

    def show(self, tally: Tally, trouble: str | None) -> None:
        """Write a line when the last one is a few seconds old, and one when all is done."""
        now = time.monotonic()
        line = f"{tally.done}/{tally.total} documents, {figures_of(tally, trouble)}"
        if (now < self._next and tally.done < tally.total) or line == self._last:
            return
        self._next = now + LINE_INTERVAL_SECONDS
        self._last = line
        self._console.print(Text(line), soft_wrap=True)


Watching = tuple[BarWatcher | LineWatcher, AbstractContextManager[Any]]


def watching(console: Console, total: int) -> Watching:
    """Return the watcher that suits `console`, and the context in which it draws."""
    if not console.is_terminal:
        return LineWatcher(console), nullcontext()
    watcher = BarWatcher(console, total)
    return watcher, watcher.bar


def figures_of(tally: Tally, trouble: str | None) -> str:
    """Return the figures of one progress line."""
    parts = [f"{tally.failed} failed", f"{tally.jobs_per_second:.1f} jobs/s", f"{tally.tokens_per_second:.0f} tokens/s"]
    if tally.eta_seconds is not None and tally.done < tally.total:
        parts.append(f"ETA {duration(tally.eta_seconds)}")
    if trouble:
        parts.append(f"waiting: {trouble}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return `h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
