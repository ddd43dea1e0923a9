"""The reaper: requeues or ends what lost workers held, expires what is late, forgets workers long silent."""

from shared import recovery, workers_repository
from shared.database import Database

INTERVAL_SECONDS = 1.0


class Reaper:
    """Settles abandoned and late jobs. Any number may run; one at a time works."""

    def __init__(self, database: Database) -> None:
        """Work on `database`."""
        self._database = database

    def run(self) -> bool:
        """Settle one portion; True when it was full, so more may wait."""
        with self._database.transaction() as session:
            if not recovery.try_lock(session):
                return False
            reaped = recovery.reap(session)
            recovery.expire(session)
            workers_repository.forget_silent(session)
        return reaped >= recovery.BATCH
