from itertools import islice

import pytest

from tests.unit.engine.fake_runner import FakeRunner
from workers.tuning.workload import Work, Workload, _jobs, measure

SMALL = Workload(prompts=(4, 12), outputs=(2, 6), window_s=0.2)


def test_all_slots_are_kept_busy_and_the_runner_serves_a_second_measurement() -> None:
    runner = FakeRunner(max_num_seqs=8, vocab_size=256)
    for slots in (8, 3):
        runner.calls.clear()
        work = measure(runner, SMALL, slots, 512)
        assert max(runner.decode_sizes) == slots
        # Jobs of four tokens spend one step of four on their prompt; the slot is taken, the row does not decode.
        assert sum(runner.decode_sizes) > 0.7 * slots * len(runner.decode_sizes)
        assert work.prompt_tokens > 0
        assert work.generated_tokens > 0
        assert 0.2 <= work.seconds < 5
        assert work.cpu_seconds > 0


def test_jobs_are_the_same_every_time_and_within_their_lengths() -> None:
    first, again = list(islice(_jobs(SMALL, 256), 50)), list(islice(_jobs(SMALL, 256), 50))
    assert first == again
    assert {len(job.prompt_ids) for job in first} <= set(range(4, 13))
    assert all(job.params.ignore_eos and 2 <= job.params.max_tokens <= 6 for job in first)
    assert all(100 <= token < 256 for job in first for token in job.prompt_ids)


def test_work_is_counted_in_average_jobs() -> None:
    work = Work(prompt_tokens=80, generated_tokens=40, seconds=1, cpu_seconds=1)
    assert work.jobs(SMALL) == pytest.approx(10)
    assert SMALL.tokens_per_job == 12
    assert SMALL.longest == 18
