"""The workers of one topology: a process each, pinned to its cores, measured all at once."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shared.errors import GenerationFailedError
from workers.tuning.workload import Work

END_SECONDS = 10


class Crew:
    """Starts on entering, ends on leaving; a context manager."""

    def __init__(self, directory: Path, core_sets: Sequence[tuple[int, ...]], rows: int, *, quick: bool) -> None:
        """Prepare workers with `rows` rows each for the model in `directory`."""
        python, options = (sys.executable, "-P", "-m", "workers.tuning.child"), ("--quick",) if quick else ()
        self._commands = [
            [*python, str(directory), ",".join(map(str, cores)), str(rows), *options] for cores in core_sets
        ]
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        """Start all and wait until their models are loaded.

        Raises:
            GenerationFailedError: one did not load; says why.
        """
        try:
            for command in self._commands:
                self._processes.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                )
            for process in self._processes:
                self._answer(process)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all."""
        self._end()

    def measure(self, slots: int, batched_tokens: int) -> list[Work]:
        """Have all work at the same time; return what each did.

        Raises:
            GenerationFailedError: one ended.
        """
        for process in self._processes:
            if process.stdin is not None:
                with suppress(BrokenPipeError):  # its answer says why
                    process.stdin.write(json.dumps([slots, batched_tokens]) + "\n")
                    process.stdin.flush()
        return [Work(**self._answer(process)) for process in self._processes]

    @staticmethod
    def _answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
        line = process.stdout.readline() if process.stdout is not None else ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended without a word"}
        if "error" in answer:
            raise GenerationFailedError(f"a measuring worker failed: {answer['error']}")
        return answer

    def _end(self) -> None:
        for process in self._processes:
            with suppress(BrokenPipeError):
                if process.stdin is not None:
                    process.stdin.close()
        for process in self._processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._processes.clear()
