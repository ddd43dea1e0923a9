import inspect
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import errors
from shared.leases import JobError
from shared.states import JobState
from workers.retry_policy import AttemptFacts, Close, RetryAfter, backoff, decide

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILED_STEP = JobError("generation_failed", "a step failed", retryable=True)


def facts(attempt: int = 1, max_attempts: int = 3, deadline: datetime | None = None) -> AttemptFacts:
    return AttemptFacts(attempt, max_attempts, NOW, deadline)


def longest(_low: float, high: float) -> float:
    return high


@pytest.mark.parametrize(
    ("code", "state"), [("cancelled", JobState.CANCELLED), ("deadline_exceeded", JobState.EXPIRED)]
)
def test_the_clients_wish_ends_a_job(code: str, state: JobState) -> None:
    assert decide(JobError(code, "", retryable=False), facts()) == Close(state)


@pytest.mark.parametrize("code", ["scrub_failed", "decryption_failed", "prompt_too_long", "invalid_input"])
def test_what_no_retry_mends_fails_at_once(code: str) -> None:
    assert decide(JobError(code, "", retryable=False), facts()) == Close(JobState.FAILED)


@pytest.mark.parametrize("code", ["worker_stopping", "service_unavailable"])
def test_the_blameless_get_their_attempt_back_even_the_last_one(code: str) -> None:
    assert decide(JobError(code, "", retryable=True), facts(attempt=3)) == RetryAfter(timedelta(0), free=True)


def test_the_last_attempt_makes_a_job_dead() -> None:
    assert decide(FAILED_STEP, facts(attempt=2), longest) == RetryAfter(timedelta(seconds=4), free=False)
    assert decide(FAILED_STEP, facts(attempt=3)) == Close(JobState.DEAD)


def test_a_retry_that_would_come_after_the_deadline_is_not_made() -> None:
    soon = NOW + timedelta(seconds=2)
    assert decide(FAILED_STEP, facts(deadline=soon), longest) == Close(JobState.EXPIRED)
    assert isinstance(decide(FAILED_STEP, facts(deadline=soon + timedelta(seconds=1)), longest), RetryAfter)


@given(st.integers(1, 10_000))
def test_delays_lie_between_one_second_and_five_minutes(attempt: int) -> None:
    assert timedelta(seconds=1) <= backoff(attempt) <= timedelta(minutes=5)


def test_delays_grow() -> None:
    ceilings = [backoff(attempt, longest).total_seconds() for attempt in range(1, 12)]
    assert ceilings == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


@given(st.integers(1, 5), st.sampled_from([cls for _, cls in inspect.getmembers(errors, inspect.isclass)]))
def test_every_error_of_the_tree_has_an_answer(attempt: int, kind: type[errors.TokenmillError]) -> None:
    decision = decide(JobError(kind.code, "", kind.retryable), facts(attempt, max_attempts=5))
    if isinstance(decision, Close):
        assert decision.state.terminal
        assert decision.state is not JobState.COMPLETED
    else:
        assert kind.retryable
