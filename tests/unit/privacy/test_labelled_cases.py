"""The labelled sets: every regression right, and the gates of recall, precision and leakage on the gold set."""

import re
import sys

import pytest

from shared.privacy import Scrubber
from shared.privacy.names import NAMES
from shared.privacy.recognizers import BUILT_IN
from tests.pii_score import UNSTRUCTURED, Score, labels, load_cases, score

SCRUBBER = Scrubber((*BUILT_IN, *NAMES))
COVERED = frozenset(finder.entity for finder in (*BUILT_IN, *NAMES))
STRUCTURED = COVERED - UNSTRUCTURED
_HAN = re.compile(r"[\u4e00-\u9fff]")
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


@pytest.fixture(scope="module")
def names(gold: Score) -> dict[str, tuple[float, float]]:
    """Recall and precision of PERSON by script."""
    shares = {}
    for script, of_script in (("Han", True), ("other", False)):
        labelled = [
            case["text"][label.start : label.end]
            for case in load_cases("pii_gold.jsonl")
            for label in labels(case, frozenset({"PERSON"}))
        ]
        total = sum(bool(_HAN.search(name)) is of_script for name in labelled)
        missed, false = (
            sum(
                bool(_HAN.search(error.split("PERSON ")[1])) is of_script
                for error in gold.errors
                if f"{kind} PER" in error
            )
            for kind in ("missed", "false")
        )
        hits = total - missed
        shares[script] = (hits / total, hits / (hits + false))
    return shares


def test_names_reach_the_targets(gold: Score, names: dict[str, tuple[float, float]]) -> None:
    assert names["Han"][0] >= 0.95, gold.errors
    assert names["Han"][1] >= 0.93, gold.errors
    assert names["other"][0] >= 0.80, gold.errors
    assert gold.by_type["PERSON"].precision >= 0.85, gold.errors


def test_addresses_reach_the_target(gold: Score) -> None:
    assert gold.by_type["ADDRESS"].labelled >= 10
    assert gold.by_type["ADDRESS"].recall >= 0.85, gold.errors


def test_a_table_of_all_types_is_printed(gold: Score, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        for entity, tally in sorted(gold.by_type.items()):
            figures = f"recall {tally.recall:.3f}, precision {tally.precision:.3f}"
            sys.stdout.write(f"\n{entity:22} {tally.labelled:4} labelled, {figures}")
    assert set(gold.by_type) == COVERED
