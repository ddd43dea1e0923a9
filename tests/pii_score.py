"""Scores spans against labelled cases: per type hits, precision, recall, and the characters left visible.

A prediction matches a label of its type when it covers nine tenths of the label's characters; each matches one.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.privacy import Span

DATA = Path(__file__).parent / "data"
UNSTRUCTURED = frozenset({"PERSON", "ADDRESS"})


@dataclass
class Tally:
    labelled: int = 0
    predicted: int = 0
    hits: int = 0
    characters: int = 0
    visible: int = 0

    @property
    def precision(self) -> float:
        return self.hits / self.predicted if self.predicted else 1.0

    @property
    def recall(self) -> float:
        return self.hits / self.labelled if self.labelled else 1.0

    @property
    def leakage(self) -> float:
        return self.visible / self.characters if self.characters else 0.0


@dataclass
class Score:
    by_type: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    errors: list[str] = field(default_factory=list)

    def total(self, entities: Iterable[str]) -> Tally:
        parts = [self.by_type[entity] for entity in entities]
        names = ("labelled", "predicted", "hits", "characters", "visible")
        return Tally(*(sum(getattr(part, name) for part in parts) for name in names))


def load_cases(name: str) -> list[dict[str, Any]]:
    lines = (DATA / name).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


def labels(case: dict[str, Any], entities: frozenset[str]) -> list[Span]:
    return [Span(e["start"], e["end"], e["type"]) for e in case["entities"] if e["type"] in entities]


def score(cases: list[dict[str, Any]], detect: Callable[[str], list[Span]], entities: frozenset[str]) -> Score:
    result = Score()
    for case in cases:
        predicted = detect(case["text"])
        _add(result, case, labels(case, entities), [span for span in predicted if span.entity in entities])
        _add_visible(result, labels(case, entities), predicted)
    return result


def _add(result: Score, case: dict[str, Any], labelled: list[Span], predicted: list[Span]) -> None:
    free = list(predicted)
    for label in labelled:
        hit = next((span for span in free if _covers(label, span)), None)
        result.by_type[label.entity].labelled += 1
        if hit:
            free.remove(hit)
            result.by_type[label.entity].hits += 1
        else:
            result.errors.append(f"{case['id']}: missed {label.entity} {case['text'][label.start : label.end]!r}")
    for span in predicted:
        result.by_type[span.entity].predicted += 1
    result.errors += [f"{case['id']}: false {span.entity} {case['text'][span.start : span.end]!r}" for span in free]


def _add_visible(result: Score, labelled: list[Span], predicted: list[Span]) -> None:
    hidden = {offset for span in predicted for offset in range(span.start, span.end)}
    for label in labelled:
        tally = result.by_type[label.entity]
        tally.characters += label.end - label.start
        tally.visible += sum(offset not in hidden for offset in range(label.start, label.end))


def _covers(label: Span, span: Span) -> bool:
    overlap = min(label.end, span.end) - max(label.start, span.start)
    return label.entity == span.entity and overlap * 10 >= 9 * (label.end - label.start)
