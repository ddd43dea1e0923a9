"""The prefilter passes every recognizer that finds something, whatever the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.privacy.fold import View
from shared.privacy.recognizers import BUILT_IN
from shared.privacy.recognizers.prefilter import Prefilter
from tests.pii_score import load_cases

PREFILTER = Prefilter(BUILT_IN)
TEXTS = [case["text"] for case in load_cases("pii_gold.jsonl")]


def check(text: str) -> None:
    view = View(text)
    chosen = {id(finder) for finder in PREFILTER.choose(view)}
    for finder in BUILT_IN:
        if id(finder) not in chosen:
            assert list(finder.find(view)) == []


@pytest.mark.parametrize("start", range(0, len(TEXTS), 50))
def test_no_find_of_the_labelled_texts_is_lost(start: int) -> None:
    for text in TEXTS[start : start + 50]:
        check(text)
    check("\n".join(TEXTS[start : start + 50]))


@given(st.lists(st.sampled_from(TEXTS) | st.text(max_size=20), max_size=3).map("".join))
def test_no_find_of_any_mix_is_lost(text: str) -> None:
    check(text)


def test_ordinary_text_needs_almost_none() -> None:
    chosen = list(PREFILTER.choose(View("The pump was repaired and runs without noise since then.")))
    assert len(chosen) <= 2


def test_an_automaton_that_gives_up_passes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    prefilter = Prefilter(BUILT_IN)

    class GivesUp:
        def Match(self, _data: bytes) -> None:  # noqa: N802 — RE2 calls it so
            return None

    monkeypatch.setattr(prefilter, "_set", GivesUp())
    assert tuple(prefilter.choose(View("call 13812345678"))) == BUILT_IN
