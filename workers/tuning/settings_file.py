"""Writes settings into `tokenmill.toml` and leaves everything else in it as it is."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from shared.errors import ConfigurationError


def write_settings(path: Path, values: Mapping[str, int]) -> None:
    """Set `values` in the file `path`, which is made when it is missing; comments and other settings stay.

    Raises:
        ConfigurationError: the file is no TOML.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigurationError(f"{path} is not valid TOML ({error}); mend it, nothing was written") from error
    for name, value in values.items():
        document[name] = value
    _replace(path, tomlkit.dumps(document))


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.is_file() else 0o644
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".tokenmill-", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(mode)
    Path(file.name).replace(path)
