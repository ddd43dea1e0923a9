from itertools import product

import pytest

from shared.states import RETRYABLE, TERMINAL, TRANSITIONS, JobState, Priority, sources_of


def test_a_completed_job_never_changes() -> None:
    assert TRANSITIONS[JobState.COMPLETED] == frozenset()
    assert JobState.COMPLETED not in RETRYABLE


@pytest.mark.parametrize("state", sorted(TERMINAL - {JobState.COMPLETED}))
def test_an_ended_job_can_only_be_retried(state: JobState) -> None:
    assert TRANSITIONS[state] == frozenset({JobState.QUEUED})


@pytest.mark.parametrize(("source", "target"), list(product(JobState, JobState)))
def test_sources_and_targets_agree(source: JobState, target: JobState) -> None:
    assert (source in sources_of(target)) == (target in TRANSITIONS[source])


def test_urgent_jobs_have_the_lower_broker_level() -> None:
    assert Priority.HIGH.broker_level < Priority.NORMAL.broker_level < Priority.LOW.broker_level
