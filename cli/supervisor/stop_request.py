"""SIGTERM and SIGINT as a request the loop reads; a second one means: at once."""

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Counts requests to stop. While `raising`, one interrupts what runs, as KeyboardInterrupt."""

    def __init__(self) -> None:
        """Start without a request."""
        self.raising = False
        self._count = 0

    @property
    def requested(self) -> bool:
        """Whether anybody asked to stop."""
        return self._count > 0

    @property
    def urgent(self) -> bool:
        """Whether they asked twice."""
        return self._count > 1

    def install(self) -> None:
        """Answer the signals; only possible in the main thread."""
        for number in SIGNALS:
            signal.signal(number, self._answer)

    def request(self) -> None:
        """Ask to stop."""
        self._count += 1

    def wait(self, seconds: float) -> None:
        """Sleep unless there is a request already."""
        if not self.requested:
            time.sleep(seconds)

    def _answer(self, _number: int, _frame: FrameType | None) -> None:
        self.request()
        if self.raising:
            self.raising = False
            raise KeyboardInterrupt
