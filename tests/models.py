"""Fixtures of the default model, imported once per importer and kept outside the tree."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.model_manifest import Precision
from shared.model_registry import versions_of
from shared.settings import DEFAULT_MODEL

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before any test module imports a runtime

ROOT = Path(__file__).parent.parent
IMPORTER = ("workers/modelstore", "workers/engine/scoring.py", "shared/cpu.py", "shared/model_manifest.py")
SHOW_ONLY = ("__main__.py", "display.py", "pull.py")


def _sources() -> Iterator[Path]:
    for entry in IMPORTER:
        path = ROOT / entry
        yield from sorted(set(path.glob("*.*")) - {path / name for name in SHOW_ONLY}) if path.is_dir() else [path]


def importer_digest() -> str:
    """Change with the importer's sources."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def download_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tokenmill"


def _installed(model_dir: Path, precision: Precision) -> Path:
    """Return the directory of the default model in `precision`, importing it if need be. Safe to run concurrently."""
    for _ in range(2):
        found = [v.path for v in versions_of(DEFAULT_MODEL, model_dir) if v.manifest.precision == precision]
        if found:
            return found[-1]
        directories = ["--model-dir", str(model_dir), "--cache-dir", str(download_cache())]
        command = [sys.executable, "-m", "workers.modelstore", "pull", "--precision", precision, *directories]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    raise AssertionError(f"the import left no {precision} version in {model_dir}")


@pytest.fixture(scope="session")
def model_store() -> Path:
    """Model directory with the default model, int8 active. Shared between runs: copy before changing anything."""
    model_dir = download_cache() / "tests" / importer_digest() / "models"
    _installed(model_dir, "int8")
    return model_dir


@pytest.fixture(scope="session")
def model_dir_int8(model_store: Path) -> Path:
    return _installed(model_store, "int8")


@pytest.fixture(scope="session")
def model_dir_fp32(model_store: Path) -> Path:
    return _installed(model_store, "fp32")


@pytest.fixture(scope="session")
def model_dir_int4(model_store: Path) -> Path:
    return _installed(model_store, "int4")


@pytest.fixture(scope="session")
def default_gguf(model_store: Path) -> Path:
    """The pinned GGUF file (the import has downloaded and verified it)."""
    assert model_store.is_dir()
    return next((download_cache() / "models").glob("*.gguf"))
