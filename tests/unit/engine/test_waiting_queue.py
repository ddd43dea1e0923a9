from workers.engine.sequence import GenerationRequest, Sequence
from workers.engine.waiting_queue import WaitingQueue


def queue_of(*sequences: Sequence, window: int = 4) -> WaitingQueue:
    queue = WaitingQueue(window)
    for arrival, item in enumerate(sequences):
        item.arrival = arrival
        queue.add(item)
    return queue


def sequence(name: str, *, priority: int = 0, deadline: float | None = None) -> Sequence:
    return Sequence(GenerationRequest(name, [1], priority=priority, deadline=deadline), arrived_at=0.0)


def served(queue: WaitingQueue, hot: str = "") -> list[str]:
    order = []
    while queue:
        chosen = queue.choose(lambda item: item.request.id in hot)
        queue.take(chosen)
        order.append(chosen.request.id)
    return order


def test_priority_then_deadline_then_arrival() -> None:
    queue = queue_of(
        sequence("e", priority=6),
        sequence("c"),
        sequence("b", deadline=9.0),
        sequence("d"),
        sequence("a", deadline=5.0),
    )
    assert [item.request.id for item in queue] == list("abcde")
    assert served(queue) == list("abcde")


def test_those_with_a_prefix_at_hand_run_together() -> None:
    assert served(queue_of(*(sequence(name) for name in "axbycz"), window=8), hot="xyz") == list("xyzabc")


def test_company_is_looked_for_within_the_window_only() -> None:
    assert served(queue_of(*(sequence(name) for name in "abcdx"), window=4), hot="x") == list("axbcd")


def test_nobody_is_passed_over_for_ever() -> None:
    queue = queue_of(sequence("cold"), window=3)
    order = []
    for arrival in range(1, 20):
        late = sequence("hot")
        late.arrival = arrival
        queue.add(late)
        chosen = queue.choose(lambda item: item.request.id == "hot")
        queue.take(chosen)
        order.append(chosen.request.id)
    assert order.index("cold") == 3


def test_company_never_overtakes_a_more_urgent_one() -> None:
    assert served(queue_of(sequence("a"), sequence("x", priority=3)), hot="x") == list("ax")
    assert served(queue_of(sequence("a", deadline=5.0), sequence("x", deadline=7.0)), hot="x") == list("ax")
    assert served(queue_of(sequence("a", deadline=5.0), sequence("x", deadline=5.5)), hot="x") == list("xa")


def test_discarding_takes_out_that_one_and_may_be_repeated() -> None:
    a, b = sequence("a"), sequence("b")
    queue = queue_of(a, b)
    queue.discard(a)
    queue.discard(a)
    assert served(queue) == ["b"]
    queue.discard(b)
    assert len(queue) == 0
