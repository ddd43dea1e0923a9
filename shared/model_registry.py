"""Installed models: `<model_dir>/<name>/<version>/` with a manifest, and one active version per name.

`<model_dir>/<name>/active` holds the active version in its first line and the one before it in the second.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ModelCorruptError, ModelNotFoundError, StateConflictError
from shared.model_manifest import MANIFEST_FILE, NAME_PATTERN, FileDigest, Manifest, read_manifest

ACTIVE_FILE = "active"


@dataclass(frozen=True)
class ModelVersion:
    """One immutable version of a model: a directory the engine can load."""

    name: str
    version: str
    path: Path
    manifest: Manifest

    @classmethod
    def load(cls, path: Path) -> "ModelVersion":
        """Read the version in the directory `path`; raises what `read_manifest` raises."""
        manifest = read_manifest(path)
        return cls(manifest.name, manifest.version, path, manifest)


def check_name(name: str) -> str:
    """Return `name` if it can name a model.

    Raises:
        ModelNotFoundError: it is not lower-case letters, digits, dots, dashes and underscores.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise ModelNotFoundError(
            "model must be 1-64 lower-case letters, digits, '.', '_' or '-', beginning with a letter or digit",
            field="model",
        )
    return name


def model_names(model_dir: Path) -> list[str]:
    """Return the names with at least one complete version, sorted."""
    return sorted({path.parent.parent.name for path in model_dir.glob(f"[!.]*/[!.]*/{MANIFEST_FILE}")})


def versions_of(name: str, model_dir: Path) -> list[ModelVersion]:
    """Return the versions of `name`, oldest first; empty when it is not installed."""
    manifests = (model_dir / check_name(name)).glob(f"[!.]*/{MANIFEST_FILE}")
    versions = [ModelVersion.load(path.parent) for path in manifests]
    return sorted(versions, key=lambda version: (version.manifest.created_at, version.version))


def list_versions(model_dir: Path) -> list[ModelVersion]:
    """Return every installed version, by name, then oldest first."""
    return [version for name in model_names(model_dir) for version in versions_of(name, model_dir)]


def _pointer(name: str, model_dir: Path) -> list[str]:
    path = model_dir / check_name(name) / ACTIVE_FILE
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


def active_version(name: str, model_dir: Path) -> str | None:
    """Return the active version of `name`, or None."""
    return next(iter(_pointer(name, model_dir)), None)


def find(name: str, version: str, model_dir: Path) -> ModelVersion:
    """Return one version.

    Raises:
        ModelNotFoundError: it is not installed; the message lists what is.
    """
    path = model_dir / check_name(name) / version
    if not NAME_PATTERN.fullmatch(version) or not (path / MANIFEST_FILE).is_file():
        known = ", ".join(v.version for v in versions_of(name, model_dir)) or "none"
        raise ModelNotFoundError(f"model {name!r} has no version {version!r}; installed: {known}", field="version")
    return ModelVersion.load(path)


def resolve_name(name: str, model_dir: Path) -> ModelVersion:
    """Return the active version of `name`; never looks outside `model_dir`, so it may be given what clients send.

    Raises:
        ModelNotFoundError: it is not installed, or no version is active.
    """
    version = active_version(name, model_dir)
    if version is None:
        known = ", ".join(model_names(model_dir)) or "none"
        raise ModelNotFoundError(
            f"model {name!r} is not installed; installed: {known}; run `tokenmill models pull {name}`", field="model"
        )
    return find(name, version, model_dir)


def resolve(name_or_path: str | Path, model_dir: Path) -> ModelVersion:
    """Return the active version of a name, or the version in a directory given as a path with a separator."""
    if isinstance(name_or_path, Path) or os.sep in name_or_path:
        return ModelVersion.load(Path(name_or_path))
    return resolve_name(name_or_path, model_dir)


def activate(name: str, version: str, model_dir: Path) -> ModelVersion:
    """Make `version` the active one, atomically; what was active becomes the target of `rollback`.

    Raises:
        ModelNotFoundError: it is not installed.
    """
    found = find(name, version, model_dir)
    lines = [version, *(earlier for earlier in _pointer(name, model_dir) if earlier != version)][:2]
    _write_atomically(model_dir / name / ACTIVE_FILE, "\n".join(lines) + "\n")
    return found


def rollback(name: str, model_dir: Path) -> ModelVersion:
    """Make the previously active version active again.

    Raises:
        StateConflictError: there is no earlier one.
    """
    earlier = _pointer(name, model_dir)[1:]
    if not earlier:
        raise StateConflictError(f"model {name!r} has no earlier active version to roll back to", field="model")
    return activate(name, earlier[0], model_dir)


def _write_atomically(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".active-", delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def digest_file(path: Path) -> FileDigest:
    """Return SHA-256 and size of `path`."""
    with path.open("rb") as file:
        return FileDigest(sha256=hashlib.file_digest(file, "sha256").hexdigest(), bytes=path.stat().st_size)


def verify(version: ModelVersion) -> None:
    """Compare every file of `version` with its manifest.

    Raises:
        ModelCorruptError: a file is missing or differs; names it.
    """
    for name, expected in version.manifest.files.items():
        path = version.path / name
        if not path.is_file():
            raise ModelCorruptError(f"{path} is missing; import model {version.name!r} again")
        if digest_file(path) != expected:
            raise ModelCorruptError(f"{path} differs from its SHA-256; import model {version.name!r} again")
