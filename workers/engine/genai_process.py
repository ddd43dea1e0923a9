"""The worker's side of the genai child: starts it when needed, calls it, ends it."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import psutil
import structlog

from shared.errors import GenerationFailedError, ModelUnsupportedError
from workers.engine import genai_wire
from workers.engine.genai_model_info import GenaiModelInfo
from workers.engine.genai_wire import Message

log = structlog.get_logger(__name__)

IDLE_POLL_S = 0.5


class GenaiCallError(RuntimeError):
    """Raised when the child answers that an operation failed; `kind` is the class it failed with."""

    def __init__(self, kind: str, message: str) -> None:
        """Keep `kind` for programs."""
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class GenaiChildError(RuntimeError):
    """Raised when the child ended during a call."""


@dataclass(slots=True)
class _Child:
    connection: "Connection[bytes, bytes]"
    process: subprocess.Popen[bytes]
    killed: bool = False

    @property
    def alive(self) -> bool:
        # A process killed a moment ago may still look alive.
        return not self.killed and self.process.poll() is None

    def kill(self) -> None:
        self.killed = True
        self.process.kill()


class GenaiProcess:
    """One child at most, loaded by the first call and ended after `idle_s` without one. Thread safe."""

    def __init__(self, info: GenaiModelInfo, threads: int, idle_s: float) -> None:
        """Take what the child will load; nothing is started."""
        self.info = info
        self._threads, self._idle_s = threads, idle_s
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._used_at = 0.0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child, or None when there is none."""
        child = self._child
        return child.process.pid if child is not None and child.alive else None

    def call(self, operation: str, **fields: Any) -> Message:  # noqa: ANN401  # JSON, by operation
        """Have the child carry out `operation`, a method of `GenaiModel`.

        Raises:
            GenaiCallError: it raised.
            GenaiChildError: the child ended.
            ModelUnsupportedError: onnxruntime-genai cannot load the model.
            GenerationFailedError: there is no memory to load it now.
        """
        with self._lock:
            child = self._running()
            try:
                return _exchange(child, {"operation": operation, **fields})
            finally:
                self._used_at = time.monotonic()

    def kill(self) -> None:
        """End the child at once, in the middle of a call too: that call raises."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the child for good."""
        self._closed = True
        self.kill()
        with self._lock:
            if self._child is not None:
                self._child.kill()
                self._child.process.wait()

    def _running(self) -> _Child:
        if self._closed:
            raise GenaiChildError("the genai process is closed")
        if self._child is None or not self._child.alive:
            check_memory(self.info.file_bytes, "loading the model into a process of its own")
            self._child = self._start()
            self._load(self._child)
        return self._child

    def _start(self) -> _Child:
        ours, theirs = Pipe()
        started: list[_Child | OSError] = []
        ready = threading.Event()

        def keep() -> None:
            # The kernel ends the child with the thread that started it, so this one stays until the child has ended.
            try:
                child = _Child(ours, _spawn(theirs))
            except OSError as error:
                started.append(error)
                ready.set()
                return
            started.append(child)
            ready.set()
            self._watch(child)

        threading.Thread(target=keep, name="genai-keeper", daemon=True).start()
        ready.wait()
        theirs.close()
        if isinstance(started[0], OSError):
            raise started[0]
        return started[0]

    def _load(self, child: _Child) -> None:
        began = time.monotonic()
        fields = {
            "directory": str(self.info.directory),
            "threads": self._threads,
            "vocab_size": self.info.vocab_size,
        }
        try:
            _exchange(child, fields)
        except GenaiCallError as error:
            child.kill()
            raise ModelUnsupportedError(f"onnxruntime-genai cannot run {self.info.directory.name}: {error}") from error
        log.info("genai child ready", pid=child.process.pid, seconds=round(time.monotonic() - began, 2))

    def _watch(self, child: _Child) -> None:
        while True:
            try:
                status = child.process.wait(IDLE_POLL_S)
                break
            except subprocess.TimeoutExpired:
                self._end_if_idle(child)
        with self._lock:  # not while somebody reads from it: the number may soon be another file's
            child.connection.close()
        log.info("genai child ended", pid=child.process.pid, exit_code=status)

    def _end_if_idle(self, child: _Child) -> None:
        # Under the lock no call can begin, so none is cut off.
        if self._lock.acquire(blocking=False):
            try:
                if self._child is child and time.monotonic() - self._used_at > self._idle_s:
                    child.kill()
            finally:
                self._lock.release()


def check_memory(needed: int, what: str) -> None:
    """Refuse what does not fit now.

    Raises:
        GenerationFailedError: `needed` bytes are not free; `what` says for what.
    """
    available = psutil.virtual_memory().available
    if needed > available:
        raise GenerationFailedError(
            f"{what} takes {needed >> 20} MiB and {available >> 20} MiB are free; it is tried again later"
        )


def _spawn(theirs: "Connection[bytes, bytes]") -> subprocess.Popen[bytes]:
    number = theirs.fileno()
    command = [sys.executable, "-m", "workers.engine.genai_child", str(number), str(os.getpid())]
    return subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)


def _exchange(child: _Child, fields: dict[str, Any]) -> Message:
    try:
        genai_wire.send(child.connection, Message(fields))
        reply = genai_wire.receive(child.connection)
    except (EOFError, OSError) as error:
        child.kill()
        child.process.wait()
        raise GenaiChildError("the genai process ended") from error
    if "error" in reply.fields:
        raise GenaiCallError(reply.fields["error"], reply.fields["message"])
    return reply
