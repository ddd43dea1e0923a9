import pytest

from workers.tuning.candidate import Candidate, Measurement, best, topologies, with_slots


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(2, 1), (1, 2)]),
        (6, [(6, 1), (3, 2), (1, 6)]),
        (16, [(16, 1), (8, 2), (4, 4), (2, 8), (1, 16)]),
    ],
)
def test_cores_are_shared_out_evenly(cores: int, expected: list[tuple[int, int]]) -> None:
    found = topologies(cores, 32, 512)
    assert [(candidate.workers, candidate.threads) for candidate in found] == expected
    for candidate in found:
        sets = candidate.core_sets(range(10, 10 + cores))
        assert sorted(core for part in sets for core in part) == list(range(10, 10 + cores))


def test_a_base_is_not_measured_twice() -> None:
    base = Candidate(2, 1, 32, 512)
    assert [candidate.slots for candidate in with_slots(base, (32, 8, 64))] == [8, 64]


def measured(slots: int, speed: float, memory: int) -> Measurement:
    return Measurement(Candidate(1, 1, slots, 512), speed, speed, memory)


def test_speed_decides_and_memory_between_equals() -> None:
    fast, equal, slow = measured(64, 100, 9), measured(32, 98, 5), measured(8, 90, 1)
    assert best([slow, fast, equal]) is equal
    assert best([slow, fast]) is fast
