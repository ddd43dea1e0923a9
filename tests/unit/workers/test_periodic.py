import threading

from workers.maintenance.periodic import LONGEST_BACKOFF_SECONDS, Periodic


def test_work_that_is_left_is_done_without_a_pause() -> None:
    left = [True, True, False]
    duty = Periodic("relay", lambda: left.pop(0), 0.1)
    assert [duty.turn() for _ in range(3)] == [0.0, 0.0, 0.1]


def test_failures_slow_a_duty_down_and_success_restores_its_pace() -> None:
    healthy = [False]

    def work() -> bool:
        if not healthy[0]:
            raise ConnectionError
        return False

    duty = Periodic("relay", work, 0.1)
    pauses = [duty.turn() for _ in range(10)]
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert max(pauses) == LONGEST_BACKOFF_SECONDS
    healthy[0] = True
    assert duty.turn() == 0.1


def test_a_duty_runs_until_it_is_stopped() -> None:
    ran = threading.Semaphore(0)

    def work() -> bool:
        ran.release()
        return False

    duty = Periodic("relay", work, 0.001)
    duty.start()
    assert all(ran.acquire(timeout=10) for _ in range(3))
    duty.stop()
    assert duty.join(10)
