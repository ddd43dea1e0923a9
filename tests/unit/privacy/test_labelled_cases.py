"""The labelled sets: every regression right, and the gates of recall, precision and leakage on the gold set."""

import pytest

from shared.privacy import Scrubber
from shared.privacy.recognizers import BUILT_IN
from tests.pii_score import UNSTRUCTURED, Score, labels, load_cases, score

SCRUBBER = Scrubber()
COVERED = frozenset(recognizer.entity for recognizer in BUILT_IN)
STRUCTURED = COVERED - UNSTRUCTURED
REGRESSIONS = load_cases("pii_regressions.jsonl")


@pytest.mark.parametrize("case", REGRESSIONS, ids=[case["kind"] for case in REGRESSIONS])
def test_regressions_stay_fixed(case: dict) -> None:
    found = SCRUBBER.detect(case["text"])
    if case["kind"] == "phone with extension":
        found = [span for span in found if case["text"][span.start : span.end].startswith("021-55119941")]
        assert len(found) == 1
    else:
        assert found == labels(case, COVERED)


@pytest.fixture(scope="module")
def gold() -> Score:
    return score(load_cases("pii_gold.jsonl"), SCRUBBER.detect, COVERED)


def test_structured_types_reach_the_target(gold: Score) -> None:
    total = gold.total(STRUCTURED)
    assert total.recall >= 0.99, gold.errors
    assert total.precision >= 0.99, gold.errors
    assert total.leakage <= 0.01, gold.errors


@pytest.mark.parametrize("entity", sorted(STRUCTURED))
def test_every_structured_type_reaches_the_target(gold: Score, entity: str) -> None:
    tally = gold.by_type[entity]
    assert tally.labelled >= 10
    assert min(tally.recall, tally.precision) >= 0.99, [error for error in gold.errors if entity in error]
