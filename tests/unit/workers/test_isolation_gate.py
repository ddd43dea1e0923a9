import threading
import time
from collections.abc import Callable

import pytest

from shared.errors import WorkerStoppingError
from workers.isolation_gate import IsolationGate


def started(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def test_many_are_inside_together_and_one_alone() -> None:
    gate, inside, most = IsolationGate(), [0], [0, 0]
    lock = threading.Lock()

    def visit(kind: int) -> None:
        with (gate.together, gate.alone)[kind]():
            with lock:
                inside[0] += 1
                most[kind] = max(most[kind], inside[0])
            time.sleep(0.02)
            with lock:
                inside[0] -= 1

    threads = [started(lambda kind=number % 2: visit(kind)) for number in range(12)]  # type: ignore[misc]
    for thread in threads:
        thread.join(10)
    assert inside == [0]
    assert most[1] == 1
    assert most[0] > 1


def test_who_waits_to_be_alone_goes_before_newcomers() -> None:
    gate, order = IsolationGate(), list[str]()

    def alone() -> None:
        with gate.alone():
            order.append("alone")

    def newcomer() -> None:
        with gate.together():
            order.append("newcomer")

    with gate.together():
        first = started(alone)
        while not gate._waiting_alone:
            time.sleep(0.001)
        second = started(newcomer)
        second.join(0.05)
        assert order == []
    first.join(10)
    second.join(10)
    assert order == ["alone", "newcomer"]


def test_closing_sends_waiters_away_and_lets_those_inside_finish() -> None:
    gate, refused = IsolationGate(), threading.Event()

    def alone() -> None:
        with pytest.raises(WorkerStoppingError), gate.alone():
            pytest.fail("the gate is closed")
        refused.set()

    with gate.together():
        waiting = started(alone)
        gate.close()
        assert refused.wait(10)
    waiting.join(10)
    with pytest.raises(WorkerStoppingError), gate.together():
        pytest.fail("the gate is closed")
