"""Files of the state directory: private from the first byte, replaced in one step."""

import os
import secrets
from pathlib import Path

from shared.errors import ConfigurationError

LOG_LIMIT_BYTES = 20 * 1024 * 1024
LOGS_KEPT = 3


def private_directory(path: Path) -> Path:
    """Make `path` a directory only its owner can enter (0700).

    Raises:
        ConfigurationError: it cannot be made, or belongs to somebody else.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(
            f"cannot keep state in {path}: {error.strerror}; set TOKENMILL_STATE_DIR to a directory of your own",
            field="TOKENMILL_STATE_DIR",
        ) from error
    return path


def write_private(path: Path, content: str) -> None:
    """Replace `path` by `content`, readable for its owner only, in one step."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def kept_secret(path: Path) -> str:
    """Return the one-line secret in `path`, made on the first call."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text(encoding="utf-8").strip()


def log_file(state_dir: Path, name: str) -> Path:
    """Return the log of `name`, moved aside first when it has grown beyond 20 MB (three old ones are kept)."""
    path = private_directory(state_dir / "logs") / f"{name}.log"
    if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
        for number in range(LOGS_KEPT - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))
    path.touch(mode=0o600)
    return path


def tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a log."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16_384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
