import pytest

from shared.errors import ConfigurationError
from workers.engine.prefix_cache import PrefixCache
from workers.engine.prefix_keys import prefix_keys
from workers.engine.scheduler import Scheduler
from workers.engine.scheduler_config import SchedulerConfig
from workers.engine.sequence import GenerationRequest, Sequence
from workers.engine.step_batch import Move, StepBatch


def sequence(name: str, prompt: int = 4, *, priority: int = 0, deadline: float | None = None) -> Sequence:
    return Sequence(GenerationRequest(name, list(range(prompt)), priority=priority, deadline=deadline), arrived_at=0.0)


def scheduler(max_num_seqs: int = 4, budget: int = 512, chunk: int = 128, wait: float = 0.0) -> Scheduler:
    return Scheduler(SchedulerConfig(max_num_seqs, budget, chunk, wait))


def compute(subject: Scheduler, now: float = 1.0) -> StepBatch:
    batch = subject.schedule(now)
    for chunk in batch.prefills:
        chunk.sequence.num_computed_tokens = chunk.stop
    for decoded in subject.decodes():
        decoded.num_computed_tokens += 1
    return batch


def names(sequences: list[Sequence] | tuple[Sequence, ...]) -> list[str]:
    return [item.request.id for item in sequences]


def test_admits_by_priority_then_deadline_then_arrival() -> None:
    subject = scheduler(max_num_seqs=8)
    for item in (
        sequence("low", priority=6),
        sequence("late", deadline=9.0),
        sequence("no deadline"),
        sequence("soon", deadline=5.0),
        sequence("second without deadline"),
    ):
        subject.add(item)
    subject.schedule(now=1.0)
    assert names(subject.running) == ["soon", "late", "no deadline", "second without deadline", "low"]


def test_admits_no_more_than_there_are_rows() -> None:
    subject = scheduler(max_num_seqs=2)
    for name in "abc":
        subject.add(sequence(name))
    compute(subject)
    assert names(subject.running) == ["a", "b"]
    assert names(list(subject.waiting)) == ["c"]


def test_long_prompts_are_cut_at_fixed_borders_whatever_else_runs() -> None:
    alone, mixed = scheduler(budget=200), scheduler(budget=200)
    mixed.add(sequence("short", 3))
    compute(mixed)
    cuts = []
    for subject in (alone, mixed):
        long = sequence("long", 300)
        subject.add(long)
        chunks = []
        while not long.prefilled:
            batch = compute(subject)
            chunks += [(chunk.start, chunk.stop) for chunk in batch.prefills if chunk.sequence is long]
        cuts.append(chunks)
    assert cuts[0] == cuts[1] == [(0, 128), (128, 256), (256, 300)]


def test_prefill_stays_within_the_budget_but_always_progresses() -> None:
    subject = scheduler(budget=256)
    subject.add(sequence("long", 600))
    sizes = [[chunk.stop - chunk.start for chunk in compute(subject).prefills] for _ in range(3)]
    assert sizes == [[128, 128], [128, 128], [88]]
    tight = scheduler(budget=1)
    tight.add(sequence("long", 300))
    assert [chunk.stop for chunk in tight.schedule(1.0).prefills] == [128]


def test_a_partly_prefilled_prompt_does_not_decode_and_stands_behind_those_that_do() -> None:
    subject = scheduler(budget=130)
    subject.add(sequence("a"))
    compute(subject)
    subject.add(sequence("long", 300))
    assert [chunk.row for chunk in compute(subject).prefills] == [1]
    assert names(subject.decodes()) == ["a"]
    assert [chunk.start for chunk in compute(subject).prefills] == [128]
    assert names(subject.decodes()) == ["a"]


def test_rows_stay_dense_when_sequences_leave() -> None:
    subject = scheduler(max_num_seqs=4, budget=130)
    a, b, c = (sequence(name, 4 + index) for index, name in enumerate("abc"))
    for item in (a, b, c):
        subject.add(item)
    compute(subject)
    subject.add(sequence("long", 300))
    compute(subject)
    assert subject.remove([a]) == [Move(2, 0, c.num_computed_tokens), Move(3, 2, 128)]
    assert names(subject.running) == ["c", "b", "long"]
    assert subject.remove([b, c]) == [Move(2, 1, 128), Move(1, 0, 128)]
    assert names(subject.running) == ["long"]


def test_the_last_rows_leave_without_a_move() -> None:
    subject = scheduler()
    items = [sequence(name) for name in "abcd"]
    for item in items:
        subject.add(item)
    compute(subject)
    assert subject.remove(items[2:]) == []
    assert subject.remove(items) == []
    assert subject.running == []


def test_removed_while_waiting_is_never_admitted() -> None:
    subject = scheduler()
    a, b = sequence("a"), sequence("b")
    subject.add(a)
    subject.add(b)
    subject.remove([a])
    subject.schedule(1.0)
    assert names(subject.running) == ["b"]


def test_deadlines_are_reported_once_for_waiting_and_running() -> None:
    subject = scheduler(max_num_seqs=1)
    running, waiting, done = (sequence(name, deadline=5.0) for name in ("running", "waiting", "done"))
    subject.add(running)
    subject.schedule(1.0)
    subject.add(waiting)
    subject.add(done)
    subject.remove([done])
    assert subject.expired(4.9) == []
    assert names(subject.expired(5.0)) == ["running", "waiting"]
    assert subject.expired(6.0) == []


def test_waits_for_company_only_when_idle() -> None:
    subject = scheduler(max_num_seqs=2, wait=0.02)
    assert subject.wait_time(0.0) is None
    subject.add(sequence("a"))
    assert subject.wait_time(0.005) == pytest.approx(0.015)
    assert not subject.schedule(0.005).prefills
    assert subject.schedule(0.02).prefills
    subject.add(sequence("b"))
    assert subject.wait_time(0.02) == 0
    assert len(subject.schedule(0.02).prefills) == 2


def test_does_not_wait_once_every_row_has_a_taker() -> None:
    subject = scheduler(max_num_seqs=1, wait=0.02)
    subject.add(sequence("a"))
    assert subject.wait_time(0.0) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", 0),
        ("prefill_chunk_size", 0),
        ("grouping_window", 0),
        ("max_swap_tokens", -1),
        ("max_preemptions", -1),
        ("prefix_cache_bytes", -1),
        ("admission_wait_s", 0.3),
    ],
)
def test_limits_that_cannot_work_are_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=field):
        SchedulerConfig(**{field: value})  # type: ignore[arg-type]  # the wrong value is the point


def test_a_prompt_computed_earlier_in_the_step_costs_those_that_share_it_nothing() -> None:
    cache = PrefixCache(1 << 20)
    subject = Scheduler(SchedulerConfig(8, 24, 8, 0.0), cache)
    for number in range(4):
        item = sequence(str(number), 20)
        item.prefix_keys = prefix_keys(item.prompt_ids, 8)
        subject.add(item)
    chunks = [(chunk.sequence.request.id, chunk.start) for chunk in subject.schedule(1.0).prefills]
    assert chunks == [("0", 0), ("0", 8), ("0", 16), ("1", 0), ("1", 8), ("1", 16)]


def test_those_that_find_their_prefix_computed_are_admitted_together() -> None:
    subject = Scheduler(SchedulerConfig(2, 512, 8, 0.0), PrefixCache(1 << 20))
    for name in ("a0", "b0", "a1", "b1"):
        item = sequence(name, 20)
        item.prefix_keys = prefix_keys(item.prompt_ids, 8, salt=name[0])
        subject.add(item)
    subject.schedule(1.0)
    assert names(subject.running) == ["a0", "a1"]


def test_a_freed_row_decodes_again_in_the_next_step() -> None:
    subject = scheduler(max_num_seqs=2)
    for name in "abc":
        subject.add(sequence(name))
    compute(subject)
    subject.remove(subject.decodes()[:1])
    compute(subject)
    assert sorted(names(subject.decodes())) == ["b", "c"]


def test_nothing_of_the_finished_is_kept_until_their_deadline() -> None:
    subject = scheduler()
    for number in range(100):
        item = sequence(str(number), deadline=1e9)
        subject.add(item)
        subject.schedule(1.0)
        subject.remove([item])
    assert not subject._with_deadline
    assert subject.expired(2e9) == []
