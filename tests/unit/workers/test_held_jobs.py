import threading
import time
from datetime import timedelta

from workers.held_jobs import HeldJobs

LEASE = timedelta(seconds=10)


def test_a_second_delivery_of_a_job_in_here_is_told_so() -> None:
    held = HeldJobs(LEASE)
    with held.admit("a") as first, held.admit("a") as second:
        assert (first, second) == (True, False)
        held.hold("a", 1, time.monotonic())
    assert held.fences() == {}
    with held.admit("a") as again:
        assert again


def test_a_duplicate_that_leaves_does_not_release_the_job() -> None:
    held = HeldJobs(LEASE)
    with held.admit("a"):
        held.hold("a", 7, time.monotonic())
        with held.admit("a"):
            pass
        assert held.fences() == {"a": 7}


def test_a_lease_is_overdue_from_the_time_it_was_asked_for() -> None:
    held, now = HeldJobs(LEASE), time.monotonic()
    held.hold("old", 1, now - 10)
    held.hold("new", 1, now)
    assert held.overdue() == ["old"]
    held.renewed({"old": 1}, now)
    assert held.overdue() == []


def test_a_renewal_of_an_earlier_claim_extends_nothing() -> None:
    held, now = HeldJobs(LEASE), time.monotonic()
    held.hold("a", 2, now - 10)
    held.renewed({"a": 1, "gone": 1}, now)
    assert held.overdue() == ["a"]
    assert held.fences() == {"a": 2}


def test_waiting_for_the_last_job_to_leave() -> None:
    held, leave = HeldJobs(LEASE), threading.Event()

    def work() -> None:
        with held.admit("a"):
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    while held.wait_until_empty(0):
        time.sleep(0.001)
    assert not held.wait_until_empty(0.01)
    leave.set()
    assert held.wait_until_empty(10)
    thread.join()
