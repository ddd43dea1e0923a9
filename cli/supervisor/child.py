"""One supervised child: started, watched, started again after a pause, stopped."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM

import structlog

from cli.embedded.files import log_file
from cli.embedded.process import ProcessIdentity, birth_of, launch
from cli.supervisor.backoff import Backoff
from cli.supervisor.fleet_file import FleetProcess
from cli.supervisor.process_spec import ProcessSpec

log = structlog.get_logger()
KILL_SECONDS = 5.0


class Child:
    """Runs `spec` until told to stop. Not thread-safe: the supervisor's loop owns it."""

    def __init__(self, spec: ProcessSpec, state_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare only; the first `tick` starts the process."""
        self.spec = spec
        self.restarts = 0
        self._state_dir = state_dir
        self._clock = clock
        self._backoff = Backoff()
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: ProcessIdentity | None = None
        self._started_at = self._start_at = clock()

    @property
    def name(self) -> str:
        """Name of its log."""
        return self.spec.name

    @property
    def running(self) -> bool:
        """Whether the process runs now."""
        return self._process is not None and self._process.poll() is None

    def entry(self) -> FleetProcess | None:
        """Return its line in fleet.json; None while it does not run."""
        if self._identity is None or not self.running:
            return None
        pid, birth = self._identity.pid, self._identity.birth
        return FleetProcess(self.spec.role, pid, birth, self.spec.cores, self.spec.number)

    def tick(self) -> None:
        """Notice a crash, or start the process when it is time."""
        if self.running:
            return
        if self._process is not None:
            self._note_exit(self._process.returncode)
        if self._clock() >= self._start_at:
            self._start()

    def _note_exit(self, exit_code: int) -> None:
        self._process = self._identity = None
        self.restarts += 1
        pause = self._backoff.after_run_of(self._clock() - self._started_at)
        self._start_at = self._clock() + pause
        log.warning("process ended", process=self.spec.name, exit_code=exit_code, retry_in=pause)

    def _start(self) -> None:
        path = log_file(self._state_dir, self.spec.name)
        process = launch(self.spec.arguments, log=path, environment=self.spec.environment, directory=Path.cwd())
        # Our unreaped child keeps its pid: its birth can be read even when it has ended already.
        self._process, self._identity = process, ProcessIdentity(process.pid, birth_of(process.pid) or "ended")
        self._started_at = self._clock()
        log.info("process started", process=self.spec.name, pid=process.pid)

    def ask_to_stop(self) -> None:
        """Send SIGTERM; `finish` waits."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(SIGTERM)

    def finish(self, until: float, *, hurry: Callable[[], bool]) -> None:
        """Wait for the end until the clock shows `until` or `hurry` says so, then kill."""
        while self.running and self._clock() < until and not hurry():
            time.sleep(0.05)
        if self._process is None:
            return
        if self.running:
            log.warning("process killed", process=self.spec.name, pid=self._process.pid)
            self._process.send_signal(SIGKILL)
        self._process.wait(KILL_SECONDS)
