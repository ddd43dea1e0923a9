"""Tables for people."""

import re
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

PIPE_COLUMNS = 400
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)\.\d+(Z|\+00:00)$")


def show(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print `columns` of `rows`; None is blank. In a pipe lines are not folded: grep must find them."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    for row in rows:
        table.add_row(*("" if row.get(column) is None else _written(row[column]) for column in columns))
    console.print(table, markup=False, width=None if console.is_terminal else PIPE_COLUMNS)


def _written(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return _FRACTION.sub(r"\1", text)
