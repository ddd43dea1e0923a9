from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from shared.errors import ConfigurationError, GenerationFailedError
from shared.model_registry import resolve_name
from shared.settings import Settings
from tests import fake_model
from workers.tuning.tuner import SHORT, THOROUGH, Tuner
from workers.tuning.workload import Work


class FakeCrew:
    """Two workers are faster than one, 16 slots faster than others, and three cores do not load."""

    started: list[tuple[int, int]] = []  # noqa: RUF012  # emptied by the fixture

    def __init__(self, directory: Path, core_sets: Sequence[tuple[int, ...]], rows: int, *, quick: bool) -> None:
        assert directory.is_dir()
        self.sets, self.quick = core_sets, quick
        FakeCrew.started.append((len(core_sets), rows))

    def __enter__(self) -> Self:
        if len(self.sets[0]) == 3:
            raise GenerationFailedError("a measuring worker failed: no room")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def measure(self, slots: int, batched_tokens: int) -> list[Work]:
        speed = {8: 50, 16: 120, 32: 100, 64: 101}[slots] + (30 if batched_tokens == 1024 else 0)
        return [Work(165 * speed, 40 * speed, 1.0, 1.0) for _ in self.sets]


@pytest.fixture(autouse=True)
def crew(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCrew.started.clear()
    monkeypatch.setattr("workers.tuning.tuner.Crew", FakeCrew)


def tuner(tmp_path: Path, cores: int, reports: list[str], *, quick: bool = False) -> Tuner:
    fake_model.install(tmp_path)
    version = resolve_name(fake_model.NAME, tmp_path)
    return Tuner(version, Settings(), range(cores), SHORT if quick else THOROUGH, reports.append)


def test_topology_then_slots_then_step(tmp_path: Path) -> None:
    tuned = tuner(tmp_path, 2, [])
    winner = tuned.run()
    assert winner.candidate.settings() == {
        "workers": 2,
        "threads_per_worker": 1,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 1024,
    }
    assert winner.tokens_per_second == pytest.approx(2 * 150 * 205)
    assert winner.tokens_per_cpu_second == pytest.approx(150 * 205)
    assert FakeCrew.started == [(2, 32), (1, 32), (2, 64), (2, 16)]
    assert len(tuned.measurements) == 2 + 3 + 2


def test_quick_tries_little_and_says_how_long_it_takes(tmp_path: Path) -> None:
    tuned = tuner(tmp_path, 16, [], quick=True)
    tuned.run()
    assert [found.candidate.slots for found in tuned.measurements] == [16, 16, 8]
    assert SHORT.seconds(16) < 30 < THOROUGH.seconds(16)


def test_a_topology_that_does_not_load_is_passed_over(tmp_path: Path) -> None:
    reports: list[str] = []
    assert tuner(tmp_path, 3, reports).run().candidate.workers == 3
    assert "1 x 3 threads: a measuring worker failed: no room" in reports


def test_what_does_not_fit_the_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    monkeypatch.setattr("workers.tuning.tuner.total_bytes", lambda: 1500 << 20)
    assert tuner(tmp_path, 2, reports).run().candidate.workers == 1
    assert "2 x 1 threads, 32 slots: left out" in reports[0]
    monkeypatch.setattr("workers.tuning.tuner.total_bytes", lambda: 500 << 20)
    with pytest.raises(ConfigurationError, match="no topology of 2 cores fits"):
        tuner(tmp_path / "again", 2, []).run()
