"""The manifest of a model version: what it was made from, how, and the digest of every file."""

import re
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from shared.errors import ModelCorruptError, ModelUnsupportedError

MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1
IMPORTER_VERSION = 4  # raised whenever an import would give other weights than before
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN.pattern}$")]

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Precision = Literal["fp32", "int8", "int4"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileDigest(_Part):
    """Digest and size of one file."""

    sha256: Sha256
    bytes: int = Field(ge=0)


class Source(_Part):
    """Where the weights came from; `sha256` is that of the source file or of the directory's listing of digests."""

    kind: Literal["gguf", "genai"]
    uri: str
    sha256: Sha256
    licence: str = "unknown"


class Quality(_Part):
    """Measured on the text the importer ships.

    `argmax_agreement` is the share of equal next tokens with float32; `largest_activation` the largest magnitude of a
    linear layer's output or a logit, all of them finite. `max_loss` is the share of perplexity the import allowed to
    lose, `forced` whether it was installed over that.
    """

    perplexity: float = Field(gt=0)
    perplexity_fp32: float | None = Field(default=None, gt=0)
    argmax_agreement: float | None = Field(default=None, ge=0, le=1)
    largest_activation: float | None = Field(default=None, ge=0)
    max_loss: float | None = None
    forced: bool = False
    text_sha256: Sha256


class CpuTarget(_Part):
    """The processor the weights were quantised on; they run on every other. `weight_range` bounds int8 magnitudes."""

    architecture: str
    features: tuple[str, ...]
    weight_range: int


class Manifest(_Part):
    """Everything known about a model version.

    `kv_bytes_per_token` counts all layers, keys and values, in float32; `kept_float` names the linear layers that the
    quality gate left in float32.
    """

    schema_version: Literal[1] = 1
    name: _Name
    version: _Name
    files: dict[str, FileDigest]
    source: Source
    architecture: str
    parameters: int = Field(ge=0)
    precision: Precision
    weight_bits: int
    quantisation: tuple[str, ...] = ()
    kept_float: tuple[str, ...] = ()
    context_length: int = Field(ge=1)
    layers: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_size: int = Field(ge=1)
    vocab_size: int = Field(ge=1)
    kv_bytes_per_token: int = Field(ge=1)
    quality: Quality | None
    cpu: CpuTarget
    created_at: datetime
    onnxruntime_version: str
    importer_version: int

    @field_validator("files")
    @classmethod
    def _inside_the_directory(cls, files: dict[str, FileDigest]) -> dict[str, FileDigest]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"file {name!r} lies outside the model directory")
        return files

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files.values())


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of the model version in `directory`.

    Raises:
        ModelUnsupportedError: there is none.
        ModelCorruptError: it cannot be understood.
    """
    path = directory / MANIFEST_FILE
    if not path.is_file():
        raise ModelUnsupportedError(f"{directory} has no {MANIFEST_FILE}; run `tokenmill models import {directory}`")
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "JSON"
        raise ModelCorruptError(f"{path} is not a valid manifest ({where}); import the model again") from error
