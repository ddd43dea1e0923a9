"""An engine in a process of its own, asked for one measurement at a time, so that engines alternate within a run."""

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from benchmarks.sides.measurement import Figures

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 120


class SideFailedError(Exception):
    """Raised when a side could not start or measure; says why."""


class SideProcess:
    """Starts at the first measurement, and again after it died, so that one crash costs one measurement."""

    def __init__(self, kind: str, model: Path, core: int, python: str = sys.executable) -> None:
        """Name the engine (`engine`, `genai`, `openvino`), its model, its core and its interpreter."""
        self.version = "not started"
        self._command = [python, "-m", "benchmarks.sides.serve", kind, str(model), str(core)]
        self._process: subprocess.Popen[bytes] | None = None
        self._refusal: str | None = None
        self._unread = b""

    def measure(self, name: str, arguments: dict[str, Any], timeout_s: float) -> Figures:
        """Return what the side's measurement `name` gives.

        Raises:
            SideFailedError: the side cannot start, failed, died, or took longer than `timeout_s`.
        """
        self._start()
        try:
            self._pipes()[0].write(json.dumps({"measure": name, "arguments": arguments}).encode() + b"\n")
            self._pipes()[0].flush()
        except BrokenPipeError as error:
            self.close()
            raise SideFailedError("its process died") from error
        answer = self._answer(timeout_s)
        if "error" in answer:
            raise SideFailedError(answer["error"])
        figures: Figures = answer["figures"]
        return figures

    def close(self) -> None:
        """End the process. May be called more than once."""
        if self._process is not None:
            for pipe in self._pipes():
                pipe.close()
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self) -> None:
        if self._refusal is not None:
            raise SideFailedError(self._refusal)
        if self._process is not None:
            return
        # Unbuffered: what select does not see must not lie in a buffer of ours.
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._unread = b""
        answer = self._answer(START_TIMEOUT_S)
        if "error" in answer:
            self.close()
            self._refusal = f"did not start: {answer['error']}"
            raise SideFailedError(self._refusal)
        self.version = answer["version"]

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            self._unread += self._read_before(deadline)
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read_before(self, deadline: float) -> bytes:
        stdout = self._pipes()[1]
        ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
        received = stdout.read(65536) if ready else b""
        if not received:
            self.close()
            raise SideFailedError("its process died; its error stands above" if ready else "it took too long")
        return received

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            raise SideFailedError("its process is not running")
        return self._process.stdin, self._process.stdout
