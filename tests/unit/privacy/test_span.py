"""The union of overlapping spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.privacy.span import PRIORITY, Span, union


@pytest.mark.parametrize(
    ("spans", "merged"),
    [
        ([], []),
        ([Span(5, 9, "PHONE"), Span(0, 3, "EMAIL")], [Span(0, 3, "EMAIL"), Span(5, 9, "PHONE")]),
        ([Span(0, 3, "PHONE"), Span(3, 6, "PHONE")], [Span(0, 3, "PHONE"), Span(3, 6, "PHONE")]),
        ([Span(0, 20, "EMAIL"), Span(5, 16, "PHONE")], [Span(0, 20, "EMAIL")]),
        ([Span(0, 20, "EMAIL"), Span(0, 11, "CN_RESIDENT_ID")], [Span(0, 20, "EMAIL")]),
        ([Span(0, 8, "PHONE"), Span(0, 8, "BANK_CARD")], [Span(0, 8, "BANK_CARD")]),
        ([Span(0, 8, "PHONE"), Span(5, 20, "BANK_CARD")], [Span(0, 20, "BANK_CARD")]),
        ([Span(0, 8, "PHONE"), Span(5, 20, "EMAIL")], [Span(0, 20, "PHONE")]),
        ([Span(0, 8, "CUSTOM"), Span(5, 20, "EMAIL")], [Span(0, 20, "EMAIL")]),
        ([Span(0, 4, "EMAIL"), Span(3, 8, "PHONE"), Span(7, 9, "EMAIL")], [Span(0, 9, "PHONE")]),
    ],
)
def test_labels(spans: list[Span], merged: list[Span]) -> None:
    assert union(spans) == merged


@given(st.lists(st.builds(Span, st.integers(0, 30), st.integers(31, 60), st.sampled_from(PRIORITY)), max_size=8))
def test_no_residue_and_no_overlap(spans: list[Span]) -> None:
    merged = union(spans)
    covered = [offset for span in merged for offset in range(span.start, span.end)]
    assert len(covered) == len(set(covered))
    assert set(covered) == {offset for span in spans for offset in range(span.start, span.end)}
