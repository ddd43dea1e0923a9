"""A span of personal data in a text, and the union of spans that overlap."""

from collections.abc import Iterable
from dataclasses import dataclass

PRIORITY = (
    "URL_WITH_CREDENTIALS",
    "SECRET",
    "CN_RESIDENT_ID",
    "CN_USCC",
    "IBAN",
    "US_SSN",
    "HK_ID",
    "TW_ID",
    "CN_PASSPORT",
    "BANK_CARD",
    "MEDICAL_RECORD_NO",
    "MAC_ADDRESS",
    "IP_ADDRESS",
    "DATE_OF_BIRTH",
    "PHONE",
    "EMAIL",
    "CN_PLATE",
    "ADDRESS",
    "PERSON",
)
"""Whose label a partial overlap takes, strongest first; custom entities come last."""

_RANK = {entity: rank for rank, entity in enumerate(PRIORITY)}


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """`[start, end)` holds a value of type `entity`."""

    start: int
    end: int
    entity: str


def union(spans: Iterable[Span]) -> list[Span]:
    """Cover every given offset once: sorted, disjoint spans, so that no part of a value stays visible.

    A span inside another takes the outer one's label; a partial overlap takes the label of higher priority.
    """
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end, _rank(span.entity))):
        if merged and span.start < merged[-1].end:
            merged[-1] = _joined(merged[-1], span)
        else:
            merged.append(span)
    return merged


def _joined(outer: Span, later: Span) -> Span:
    if later.end <= outer.end:
        return outer
    return Span(outer.start, later.end, min(outer.entity, later.entity, key=_rank))


def _rank(entity: str) -> int:
    return _RANK.get(entity, len(PRIORITY))
