from pathlib import Path

import psutil

from tests.unit.engine.fake_runner import FakeRunner, decode
from workers.engine import Engine
from workers.memory_watch import MemoryWatch, own_bytes, proportional_bytes

LIMIT = 1000


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class TrimmingEngine(Engine):
    trimmed = 0

    def trim(self) -> None:
        self.trimmed += 1


class Bench:
    def __init__(self) -> None:
        self.engine = TrimmingEngine(FakeRunner(), decode)
        self.clock, self.used = Clock(), 0
        self.watch = MemoryWatch(self.engine, LIMIT, lambda _: self.used, self.clock)

    def after(self, seconds: float, used: int) -> bool:
        self.clock.now += seconds
        self.used = used
        return self.watch.exceeded()


def test_caches_go_first_then_the_worker() -> None:
    bench = Bench()
    assert [bench.after(1, LIMIT), bench.engine.trimmed] == [False, 0]
    assert [bench.after(1, LIMIT + 1), bench.engine.trimmed] == [False, 1]
    assert [bench.after(4, LIMIT + 1), bench.engine.trimmed] == [False, 1]
    assert bench.after(1.1, LIMIT + 1)


def test_who_comes_back_below_the_limit_stays_and_may_trim_again() -> None:
    bench = Bench()
    bench.after(1, LIMIT + 1)
    assert not bench.after(2, LIMIT)
    assert not bench.after(60, LIMIT + 1)
    assert bench.engine.trimmed == 2


def test_an_engine_without_caches_is_given_the_same_time() -> None:
    clock = Clock()
    watch = MemoryWatch(Engine(FakeRunner(), decode), LIMIT, lambda _: LIMIT + 1, clock)
    assert not watch.exceeded()
    clock.now += 6
    assert watch.exceeded()


def test_it_measures_once_a_second() -> None:
    bench = Bench()
    assert not bench.after(0, LIMIT + 1)
    assert [bench.after(0.5, LIMIT + 1), bench.engine.trimmed] == [False, 1]


def test_shared_pages_count_in_part(tmp_path: Path) -> None:
    (tmp_path / "rollup").write_bytes(b"Rss:  900 kB\nPss:      300 kB\nPss_Anon:  7 kB\n")
    assert proportional_bytes(tmp_path / "rollup") == 300 * 1024
    assert proportional_bytes(tmp_path / "absent") is None


def test_the_process_itself_is_measured() -> None:
    resident = psutil.Process().memory_info().rss
    assert 0.5 * resident < own_bytes(1 << 60) < 2 * resident
    assert 0 < own_bytes(0) < 2 * resident
