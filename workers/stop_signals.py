"""SIGTERM and SIGINT, counted: the first asks to drain, the second to hurry."""

import signal
from types import FrameType


class StopSignals:
    """Counts the requests to stop. Polled, not waited for: a handler may not take locks its own thread may hold."""

    def __init__(self) -> None:
        """Count from zero; `install` comes later."""
        self._count = 0

    def install(self) -> None:
        """Handle the signals; main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self._count > 0

    @property
    def urgent(self) -> bool:
        """Whether to stop at once."""
        return self._count > 1
