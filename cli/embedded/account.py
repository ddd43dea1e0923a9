"""The account PostgreSQL runs under: it refuses to run as root."""

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ServerStartError

UNPRIVILEGED = "nobody"


@dataclass(frozen=True)
class Account:
    """A system account by number."""

    uid: int
    gid: int

    def run(self, arguments: Sequence[str], *, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a command as this account and collect its output."""
        return run_as(self, arguments, timeout=timeout)

    def can_enter(self, directory: Path) -> bool:
        """Whether this account may work in `directory`, found out by trying."""
        return self.run(["test", "-x", str(directory)]).returncode == 0

    def can_execute(self, program: Path) -> bool:
        """Whether this account can start `program`, found out by trying."""
        try:
            return self.run([str(program), "--version"]).returncode == 0
        except PermissionError:
            return False


def server_account() -> Account | None:
    """Return the account PostgreSQL must switch to; None when this process is not root.

    Raises:
        ServerStartError: root, and there is no unprivileged account.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(UNPRIVILEGED)
    except KeyError as error:
        raise ServerStartError(
            f"PostgreSQL does not run as root and there is no account {UNPRIVILEGED!r}; "
            "start tokenmill as an ordinary user, or set TOKENMILL_DATABASE_URL",
            field="TOKENMILL_DATABASE_URL",
        ) from error
    return Account(entry.pw_uid, entry.pw_gid)


def run_as(
    account: Account | None, arguments: Sequence[str], *, timeout: float = 120
) -> "subprocess.CompletedProcess[str]":
    """Run a command, as `account` or as ourselves, and collect its output."""
    return subprocess.run(
        list(arguments),
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd="/",
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
