"""Rows generated apart from the labelled set: other templates, names, groupings and lookalikes, one row each."""

import pytest

from shared.privacy import Scrubber
from shared.privacy.names import NAMES
from shared.privacy.recognizers import BUILT_IN
from tests.pii_score import UNSTRUCTURED, Score, load_cases, score

FINDERS = (*BUILT_IN, *NAMES)
SCRUBBER = Scrubber(FINDERS)
ENTITIES = frozenset(finder.entity for finder in FINDERS)


@pytest.fixture(scope="module")
def generated() -> Score:
    return score(load_cases("pii_generated.jsonl"), SCRUBBER.detect, ENTITIES)


def test_structured_types_reach_the_target(generated: Score) -> None:
    total = generated.total(ENTITIES - UNSTRUCTURED)
    assert min(total.recall, total.precision) >= 0.99, generated.errors
    assert total.leakage <= 0.01, generated.errors


@pytest.mark.parametrize(("entity", "recall", "precision"), [("PERSON", 0.95, 0.93), ("ADDRESS", 0.85, 0.85)])
def test_names_and_addresses_reach_the_target(generated: Score, entity: str, recall: float, precision: float) -> None:
    tally = generated.by_type[entity]
    assert tally.labelled >= 25
    assert tally.recall >= recall, generated.errors
    assert tally.precision >= precision, generated.errors
