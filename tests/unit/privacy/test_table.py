"""Heads of columns: found from any cell, in linear time, and only where there is a table."""

import time

import pytest

from shared.privacy.table import Table

TABLE = b"a;first,name;DOB\n1;x;p\n22;yy;q\n"


@pytest.mark.parametrize(
    ("cell", "heading"), [(b"a;", ""), (b"1;", "a"), (b"x;", "first,name"), (b"q\n", "dob"), (b"yy", "first,name")]
)
def test_a_cell_knows_the_head_of_its_column(cell: bytes, heading: str) -> None:
    assert Table(TABLE).heading(TABLE.index(cell)) == heading


@pytest.mark.parametrize("text", [b"plain", b"a,b\n\n1,x", b"a,b,c\n1,x", b"", b"x" * 9000 + b",x"])
def test_elsewhere_there_is_none(text: bytes) -> None:
    assert Table(text).heading(max(len(text) - 1, 0)) == ""


@pytest.mark.parametrize("unit", [b"1,2\n", b"1,", b"\n", b"|\n", b"1;2,3|4\t5\n"])
def test_asking_about_every_cell_takes_linear_time(unit: bytes) -> None:
    fastest = [min(_seconds(unit * (length // len(unit))) for _ in range(2)) for length in (10_000, 40_000)]
    assert fastest[1] < 12 * fastest[0] + 0.25


def _seconds(data: bytes) -> float:
    started, table = time.process_time(), Table(data)
    for offset in range(0, len(data), 4):
        table.heading(offset)
    return time.process_time() - started
