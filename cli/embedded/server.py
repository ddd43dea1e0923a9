"""What the embedded servers share: adopt what runs, start what does not, stop what is ours."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from signal import Signals
from typing import ClassVar

from cli.embedded.files import log_file, private_directory, tail
from cli.embedded.ports import PortBook
from cli.embedded.process import ProcessIdentity, wait_until
from shared.errors import ServerStartError

READY_SECONDS = 60.0


class EmbeddedServer(ABC):
    """A server whose data, port and password live in (or are named by) the state directory."""

    role: ClassVar[str]
    stop_steps: ClassVar[Sequence[tuple[Signals, float]]]

    def __init__(self, state_dir: Path, *, port: int = 0) -> None:
        """Prepare only; `start` does the work. `port` 0 picks a free port and keeps it."""
        self.state_dir = state_dir.absolute()
        self.directory = self.state_dir / self.role
        self.port = port
        self._configured_port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Complete URL, with password."""

    @abstractmethod
    def find(self) -> ProcessIdentity | None:
        """Return the running server of this state directory; None when there is none."""

    @abstractmethod
    def running_port(self) -> int:
        """Port the running server was started with; 0 when unknown."""

    @abstractmethod
    def ping(self) -> None:
        """Raise when the server does not answer to our password."""

    @abstractmethod
    def prepare(self) -> None:
        """Create data and configuration; clear away what a crash left."""

    @abstractmethod
    def launch(self, log: Path) -> "subprocess.Popen[bytes]":
        """Start the process."""

    def start(self) -> bool:
        """Adopt the running server or start one, and wait until it answers; True when it was adopted.

        Raises:
            ServerStartError: port taken, or it did not become ready; the message carries the end of its log.
        """
        private_directory(private_directory(self.state_dir) and self.directory)
        self.port = PortBook(self.state_dir).port_of(self.role, self._configured_port)
        adopted = self._adopt()
        if not adopted:
            PortBook(self.state_dir).claim(self.role, self._configured_port)
            self.prepare()
            self._child = self.launch(log_file(self.state_dir, self.role))
        try:
            self._wait_ready()
        except BaseException:
            if not adopted:
                self.stop()
            raise
        return adopted

    def stop(self) -> bool:
        """Stop the server cleanly; harder when it does not go. True when it is gone."""
        found = self.find() or (self._child and ProcessIdentity.of(self._child.pid))
        gone = found.stop(self.stop_steps) if found else True
        if gone and self._child is not None:
            self._child.wait()
            self._child = None
        return gone

    def alive(self) -> bool:
        """Whether the server's process runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self.find() is not None

    def answers(self) -> bool:
        """Whether the server answers now."""
        try:
            self.ping()
        except Exception:  # noqa: BLE001  # each driver has its own tree; any of them means "not yet"
            return False
        return True

    def _adopt(self) -> bool:
        if self.find() is None:
            return False
        if self.running_port() == self.port:
            return True
        self.stop()
        return False

    def _wait_ready(self) -> None:
        ready = wait_until(lambda: not self.alive() or self.answers(), READY_SECONDS)
        if ready and self.alive():
            return
        log = self.state_dir / "logs" / f"{self.role}.log"
        raise ServerStartError(f"{self.role} did not become ready on port {self.port}; {log} ends:\n{tail(log)}")
