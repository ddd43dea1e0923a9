from pathlib import Path

import pytest

from shared.errors import ConfigurationError
from shared.settings import Settings
from workers.tuning.settings_file import write_settings

VALUES = {"workers": 2, "max_num_seqs": 16}


def test_other_settings_and_comments_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenmill.toml"
    path.write_text('# ours\nmodel = "mine"  # not the default\nworkers = 7\n\napi_port = 8000\n')
    path.chmod(0o600)
    write_settings(path, VALUES)
    assert path.read_text() == (
        '# ours\nmodel = "mine"  # not the default\nworkers = 2\n\napi_port = 8000\nmax_num_seqs = 16\n'
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokenmill.toml"]
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    assert (settings.workers, settings.max_num_seqs, settings.model) == (2, 16, "mine")


def test_a_missing_file_is_made(tmp_path: Path) -> None:
    write_settings(tmp_path / "tokenmill.toml", VALUES)
    assert (tmp_path / "tokenmill.toml").read_text() == "workers = 2\nmax_num_seqs = 16\n"


def test_a_broken_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokenmill.toml"
    path.write_text("workers = = 2")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        write_settings(path, VALUES)
    assert path.read_text() == "workers = = 2"
