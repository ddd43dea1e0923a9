"""Tables for people."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def show(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print `columns` of `rows`; values that are None are blank."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(column) is None else str(row[column]) for column in columns))
    Console().print(table, markup=False)
