import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from benchmarks.campaign import Answer, Campaign, medians
from benchmarks.contestants import Contestant
from benchmarks.memory import smaps_rollup
from benchmarks.plan import QUICK, SUITES, Measurement, Scale, alternating, plan, steps_for
from benchmarks.process_times import ThreadTimes, engine_and_others
from benchmarks.result_file import ResultFile
from benchmarks.side_process import SideFailedError, SideProcess
from benchmarks.sides.measurement import perplexity_of
from benchmarks.tables import section
from benchmarks.workloads import SHARED_TOKENS, curve_prompts, mixed_jobs, output_tokens, prompt_tokens, workload

ENGINE = Contestant("tokenmill", "engine", Path("model"))
GENAI = Contestant("genai", "genai", Path("model"))


def measurement(row: str, side: str, suite: str = "decode", estimate_s: float = 0.0, count: int = 3) -> Measurement:
    return Measurement(suite, row, side if suite == "decode" else "", side, "curve", {"count": count}, estimate_s)


def test_mixed_jobs_are_those_the_targets_speak_of() -> None:
    jobs = mixed_jobs(80)
    assert (prompt_tokens(jobs), output_tokens(jobs)) == (28064, 5427)
    assert mixed_jobs(200)[:80] == jobs
    assert all(30 <= len(job.prompt_ids) <= 600 and 16 <= job.max_tokens <= 128 for job in jobs)


def test_shared_prefix_jobs_share_the_instruction_and_no_more() -> None:
    jobs = workload("shared-prefix", 20)
    assert len({job.prompt_ids[:SHARED_TOKENS] for job in jobs}) == 1
    assert len({job.prompt_ids[SHARED_TOKENS] for job in jobs}) > 1
    assert all(50 <= len(job.prompt_ids) - SHARED_TOKENS <= 150 for job in jobs)


def test_curve_prompts_share_no_first_token() -> None:
    prompts = curve_prompts(64, 37)
    assert all(len(prompt) == 37 for prompt in prompts)
    assert all(one[0] != other[0] for one, other in combinations(prompts, 2))


def test_uniform_logits_have_the_vocabulary_for_perplexity() -> None:
    logits = [np.zeros(50, np.float32) for _ in range(9)]
    assert perplexity_of(list(range(10)), logits)["perplexity"] == pytest.approx(50)


def test_steps_decode_about_the_same_number_of_tokens() -> None:
    assert [steps_for(rows, 320) for rows in (1, 8, 32, 64, 128)] == [48, 40, 10, 5, 4]


def test_sides_alternate() -> None:
    one, other = measurement("1", "a"), measurement("1", "b")
    two = measurement("2", "a")
    assert alternating([[one, two], [other]]) == [one, other, two]


def test_the_plan_of_every_suite_fits_its_time() -> None:
    groups = plan([ENGINE, GENAI], SUITES, QUICK, [1] * 40)
    assert [group[0].suite for group in groups] == list(SUITES)
    assert sum(item.estimate_s for group in groups for item in group) < 180
    whole = plan([ENGINE, GENAI], ["decode"], Scale(), [])
    assert [item.row for item in whole[0]][::2] == ["1", "8", "16", "32", "64"]


def test_medians_of_what_was_measured() -> None:
    answers = [Answer(measurement("1", "a"), figures) for figures in ({"x": 1.0}, {"x": 9.0, "y": 5.0}, {"x": 2.0}, {})]
    assert medians(answers) == {"x": 2.0, "y": 5.0}


def test_curve_table_gives_the_ratio_of_ours_to_theirs_and_names_failures() -> None:
    answers = [
        Answer(measurement("8", "ours"), {"decode": 300.0}),
        Answer(measurement("8", "theirs"), {"decode": 150.0}),
        Answer(measurement("64", "ours"), {"decode": 400.0}),
        Answer(measurement("64", "theirs"), {}, "too many rows"),
    ]
    text = section(answers)
    assert "| 8 | 300 | 150 | 2.00 |" in text
    assert "| 64 | 400 | - | - |" in text
    assert "- theirs, 64: too many rows" in text


def test_mixed_table_compares_with_the_best_setting_of_the_peer() -> None:
    rates = (("ours", "ours 32", 80.0), ("theirs", "theirs 16", 40.0), ("theirs", "theirs 32", 50.0))
    figures = {"cpu_s": 1.0}
    text = section(
        [Answer(measurement(row, side, "mixed"), {"jobs_per_cpu_minute": rate, **figures}) for side, row, rate in rates]
    )
    assert "| ours 32 | 80.0 | 1.0 | - | 1.60 |" in text


def test_prefix_table_counts_the_repeats_of_the_instruction() -> None:
    answer = Answer(measurement("on", "ours", "prefix"), {"jobs_per_cpu_minute": 9.0, "cached_tokens": 2 * 384})
    assert "| on | 9.0 | 96.0% |" in section([answer])


def test_engine_thread_is_the_one_that_ran_most() -> None:
    before = {1: ThreadTimes(5.0, 1.0), 2: ThreadTimes(0.0, 0.0)}
    after = {1: ThreadTimes(6.0, 1.0), 2: ThreadTimes(8.0, 2.0), 3: ThreadTimes(0.5, 0.0)}
    assert engine_and_others(before, after) == (ThreadTimes(8.0, 2.0), 1.5)


def test_smaps_rollup_is_read_by_field() -> None:
    text = "00400000-7fff0000 ---p 00000000 00:00 0 [rollup]\nRss:     1024 kB\nPss:      512 kB\n"
    assert smaps_rollup(text) == {"Rss": 1024, "Pss": 512}


@pytest.fixture
def absent() -> Iterator[SideProcess]:
    side = SideProcess("engine", Path("nowhere"), 0, sys.executable)
    yield side
    side.close()


def test_a_side_that_cannot_measure_says_why_and_serves_on(absent: SideProcess) -> None:
    for _ in range(2):
        with pytest.raises(SideFailedError, match="nowhere"):
            absent.measure("curve", {"rows": 1, "tokens": 4, "steps": 1}, 60)


def test_a_side_that_cannot_start_says_why() -> None:
    side = SideProcess("unheard_of", Path("nowhere"), 0, sys.executable)
    with pytest.raises(SideFailedError, match="did not start: ModuleNotFoundError"):
        side.measure("curve", {}, 60)


def test_what_does_not_fit_the_budget_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.result_file.RESULTS", tmp_path)
    campaign = Campaign({}, ResultFile("suite", {}), budget_s=10)
    answers = campaign.run([measurement("8", "ours", estimate_s=11)], 2)
    assert [answer.failure for answer in answers] == ["skipped: the time budget is used up"] * 2
    assert len(campaign.results.path.read_text().splitlines()) == 3
