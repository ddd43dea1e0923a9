"""`tokenmill tune` measures the real model in processes of its own and writes what it found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shared.settings import Settings


@pytest.mark.model
def test_tune_measures_and_writes_settings(model_store: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenmill.toml").write_text(f'# kept\nmodel_dir = "{model_store}"\n')
    run = subprocess.run(
        [sys.executable, "-m", "cli.main", "tune", "--quick", "--write", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=Settings().child_environment(),
    )
    assert run.returncode == 0, run.stderr
    assert "takes about" in run.stderr
    result = json.loads(run.stdout)
    best = result["best"]
    assert best in result["measurements"]
    assert all(found["tokens_per_second"] > 0 for found in result["measurements"])
    text = (tmp_path / "tokenmill.toml").read_text()
    assert text.startswith("# kept")
    for name in ("workers", "threads_per_worker", "max_num_seqs", "max_num_batched_tokens"):
        assert f"{name} = {best[name]}\n" in text
