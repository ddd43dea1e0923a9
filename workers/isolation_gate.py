"""Who may run together: jobs suspected of killing their worker run alone, all others share."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.errors import WorkerStoppingError


class IsolationGate:
    """Many may be inside together, or one alone; whoever waits to be alone goes before new ones. Thread safe."""

    def __init__(self) -> None:
        """Open the gate."""
        self._changed = threading.Condition()
        self._inside = 0
        self._waiting_alone = 0
        self._alone = False
        self._closed = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Be inside with others while the block runs.

        Raises:
            WorkerStoppingError: the gate was closed.
        """
        with self._changed:
            self._wait_for_turn(lambda: not self._alone and not self._waiting_alone)
            self._inside += 1
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside alone while the block runs.

        Raises:
            WorkerStoppingError: the gate was closed.
        """
        with self._changed:
            self._waiting_alone += 1
            try:
                self._wait_for_turn(lambda: not self._inside)
            finally:
                self._waiting_alone -= 1
                self._changed.notify_all()
            self._inside, self._alone = 1, True
        try:
            yield
        finally:
            self._leave()

    def close(self) -> None:
        """Let nobody in any more; those inside stay until they leave."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait_for_turn(self, free: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._closed or free())
        if self._closed:
            raise WorkerStoppingError("the worker is stopping; the job is queued again")

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._alone = False
            self._changed.notify_all()
