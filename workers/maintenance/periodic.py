"""A duty that comes round for ever, on a thread of its own, and slows down while what it needs is away."""

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

LONGEST_BACKOFF_SECONDS = 10.0

Duty = Callable[[], bool]


class Periodic:
    """Calls `duty` every `interval` seconds, at once again while it returns True (there is more to do).

    A duty that fails is tried again after twice the wait, up to `LONGEST_BACKOFF_SECONDS`.
    """

    def __init__(self, name: str, duty: Duty, interval: float) -> None:
        """Prepare; nothing runs before `start`."""
        self._name = name
        self._duty = duty
        self._interval = interval
        self._failures = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after what it is doing."""
        self._stopping.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end; return whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        while not self._stopping.wait(self.turn()):
            pass

    def turn(self) -> float:
        """Do the duty once; return how many seconds to wait before the next time."""
        try:
            more = self._duty()
        except Exception as error:  # noqa: BLE001  # whatever is away may come back; the thread must outlive it
            return self._pause_after(error)
        self._failures = 0
        return 0.0 if more else self._interval

    def _pause_after(self, error: Exception) -> float:
        self._failures += 1
        pause = min(max(self._interval, 0.1) * 2.0 ** min(self._failures, 10), LONGEST_BACKOFF_SECONDS)
        log.warning(
            "duty failed", process=self._name, error_type=type(error).__name__, count=self._failures, retry_in=pause
        )
        return pause
