import pytest

from shared.sampling import SamplingParams
from workers.engine.preemption import Shortage, victims
from workers.engine.scheduler import Scheduler
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sequence import GenerationRequest, Sequence
from workers.engine.step_batch import Move, SwapIn, SwapOut, Transfer

ONE_ROW = Shortage(rows=1, tokens=0)
HIGH, NORMAL, LOW = 0, 3, 6


def sequence(name: str, priority: int = LOW, *, prompt: int = 4, max_tokens: int = 10) -> Sequence:
    request = GenerationRequest(name, [1] * prompt, SamplingParams(max_tokens=max_tokens), priority=priority)
    return Sequence(request, arrived_at=0.0)


def running(name: str, priority: int = LOW, *, tokens: int = 6, admitted_at: float = 1.0) -> Sequence:
    item = sequence(name, priority)
    item.num_computed_tokens, item.admitted_at = tokens, admitted_at
    return item


def chosen(items: list[Sequence], shortage: Shortage = ONE_ROW, swap_room: int = 100, limit: int = 2) -> list[str]:
    found = victims(items, priority=NORMAL, shortage=shortage, swap_room=swap_room, max_preemptions=limit)
    return [item.request.id for item in found]


def test_the_least_urgent_yields_and_among_equals_the_youngest() -> None:
    old, young = running("old", admitted_at=1.0), running("young", admitted_at=2.0)
    middle = running("middle", priority=LOW - 1, admitted_at=3.0)
    assert chosen([middle, old, young]) == ["young"]


def test_equals_and_betters_never_yield() -> None:
    assert chosen([running("equal", NORMAL), running("better", HIGH)]) == []


def test_nobody_yields_without_need_or_more_often_than_allowed() -> None:
    tired = running("tired")
    tired.preemptions = 2
    assert chosen([running("a")], Shortage(0, -5)) == []
    assert chosen([tired]) == []
    assert chosen([tired, running("a")]) == ["a"]


def test_kv_that_cannot_be_kept_is_not_given_up() -> None:
    large, small, prompt = running("large", tokens=90), running("small", tokens=5), running("prompt", tokens=3)
    assert chosen([large], swap_room=89) == []
    assert chosen([small, large], swap_room=89) == ["small"]
    assert chosen([prompt], swap_room=0) == ["prompt"]


def test_enough_yield_or_nobody() -> None:
    items = [running("a", admitted_at=1.0), running("b", admitted_at=2.0)]
    assert chosen(items, Shortage(rows=0, tokens=15)) == ["b", "a"]
    assert chosen(items, Shortage(rows=0, tokens=29)) == []
    assert chosen(items, Shortage(rows=2, tokens=0), swap_room=6) == []


def scheduler(**limits: int) -> Scheduler:
    return Scheduler(SchedulerConfig(**{"max_num_seqs": 2, "prefill_chunk_size": 8, "admission_wait_s": 0, **limits}))


def run(subject: Scheduler) -> tuple[Transfer, ...]:
    batch = subject.schedule(1.0)
    for chunk in batch.prefills:
        chunk.sequence.num_computed_tokens = chunk.stop
    for item in subject.decodes():
        item.num_computed_tokens += 1
    return batch.transfers


def add(subject: Scheduler, *items: Sequence) -> None:
    for item in items:
        subject.add(item)


def test_an_urgent_arrival_takes_a_row_and_gives_it_back() -> None:
    subject = scheduler()
    first, second, urgent = sequence("first"), sequence("second"), sequence("urgent", HIGH)
    add(subject, first, second)
    run(subject)
    add(subject, urgent)
    assert run(subject) == (SwapOut(second, 1),)
    assert subject.running == [first, urgent]
    assert run(subject) == ()
    subject.remove([urgent])
    assert run(subject) == (SwapIn(second, 1),)
    assert (second.num_computed_tokens, second.preemptions, second.admitted_at) == (6, 1, 1.0)
    assert subject.decodes() == (first, second)


def test_the_gap_of_one_that_yields_is_closed_after_its_kv_was_kept() -> None:
    subject = scheduler(max_num_seqs=3)
    low, high, urgent = sequence("low"), sequence("high", HIGH), sequence("urgent", HIGH)
    add(subject, low)
    run(subject)
    add(subject, high, sequence("other", HIGH))
    run(subject)
    add(subject, urgent)
    assert run(subject) == (SwapOut(low, 0), Move(2, 0, 5))


def test_one_that_returns_stands_before_those_still_in_their_prompt() -> None:
    subject = scheduler(max_num_seqs=3, max_num_batched_tokens=8)
    low, long = sequence("low"), sequence("long", prompt=40)
    add(subject, low)
    run(subject)
    subject.remove([low])
    back = sequence("back")
    back.num_computed_tokens, back.admitted_at = 5, 0.5
    add(subject, sequence("front"), long)
    run(subject)
    assert [item.request.id for item in subject.running] == ["front", "long"]
    long.num_computed_tokens = 39
    add(subject, back)
    assert run(subject) == (Move(1, 2, 39), SwapIn(back, 1))
    assert [item.request.id for item in subject.running] == ["front", "back", "long"]


def test_a_prompt_cut_short_begins_anew_at_the_same_borders() -> None:
    subject = scheduler(max_num_seqs=1, max_num_batched_tokens=8, max_swap_tokens=0)
    long, urgent = sequence("long", prompt=20), sequence("urgent", HIGH)
    add(subject, long)
    run(subject)
    add(subject, urgent)
    assert run(subject) == ()
    assert subject.running == [urgent]
    assert long.num_computed_tokens == 0
    subject.remove([urgent])
    assert [(chunk.start, chunk.stop) for chunk in subject.schedule(1.0).prefills] == [(0, 8)]


def test_kv_memory_admits_in_order_and_no_more_than_it_holds() -> None:
    subject = scheduler(max_num_seqs=8, max_kv_tokens=40)
    large, small = sequence("large", prompt=20), sequence("small")
    add(subject, sequence("first"), large, small)
    run(subject)
    assert [item.request.id for item in subject.running] == ["first"]
    assert list(subject.waiting) == [large, small]
    subject.remove(list(subject.running))
    run(subject)
    assert [item.request.id for item in subject.running] == ["large"]


def test_kv_memory_is_taken_from_the_less_urgent() -> None:
    subject = scheduler(max_num_seqs=8, max_kv_tokens=42)
    add(subject, *(sequence(str(number)) for number in range(3)))
    run(subject)
    add(subject, sequence("urgent", HIGH, prompt=10))
    assert [type(item) for item in run(subject)] == [SwapOut, SwapOut]
    assert [item.request.id for item in subject.running] == ["0", "urgent"]


def test_kept_kv_never_exceeds_its_room() -> None:
    subject = scheduler(max_num_seqs=2, max_swap_tokens=5)
    add(subject, sequence("a"), sequence("b"))
    run(subject)
    add(subject, sequence("urgent", HIGH), sequence("urgent too", HIGH))
    assert len(run(subject)) == 1
    assert run(subject) == ()
    assert sum(item.swap_tokens for item in subject.waiting) == 5


@pytest.mark.parametrize("limits", [{"max_preemptions": 0}, {"max_swap_tokens": 0}])
def test_preemption_can_be_switched_off(limits: dict[str, int]) -> None:
    subject = scheduler(**limits)
    add(subject, sequence("a"), sequence("b"))
    run(subject)
    add(subject, sequence("urgent", HIGH))
    assert run(subject) == ()
    assert [item.request.id for item in subject.running] == ["a", "b"]
