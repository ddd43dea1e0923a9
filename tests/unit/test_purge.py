from pathlib import Path

import pytest

from cli.supervisor.down import purge
from shared.errors import InvalidInputError


def test_a_folder_that_is_no_state_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError):
        purge(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("marker", ["supervisor.lock", "ports.json", "encryption.key"])
def test_whatever_up_got_round_to_writing_is_purged(tmp_path: Path, marker: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / marker).write_text("")
    purge(state)
    assert not state.exists()


def test_a_noted_home_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    (state / "postgres").mkdir(parents=True)
    other.mkdir()
    (state / "encryption.key").write_text("k:x")
    (state / "postgres" / "home").write_text(f"{other}\n")
    purge(state)
    assert other.exists()
    assert not state.exists()
