"""The relay: publishes what submissions and retries left in the outbox."""

from collections.abc import Callable

from shared import outbox
from shared.database import Database
from shared.outbox import Message

INTERVAL_SECONDS = 0.5  # the API publishes what it accepts itself; this is for what it could not


class Relay:
    """Publishes due outbox rows. Several may run: each row is taken by one of them."""

    def __init__(self, database: Database, publish: Callable[[Message], None]) -> None:
        """Read from `database`; `publish` raises when the broker is away."""
        self._database = database
        self._publish = publish

    def run(self) -> bool:
        """Publish one portion; True when there was one, so more may wait."""
        with self._database.transaction() as session:
            return outbox.relay(session, self._publish) > 0
