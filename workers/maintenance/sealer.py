"""The sealer: gives committed audit events their place in the chain, and notes its head in the log."""

import structlog

from shared import audit_chain
from shared.database import Database

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 2.0


class Sealer:
    """Seals audit events. Any number may run; one at a time works."""

    def __init__(self, database: Database) -> None:
        """Work on `database`."""
        self._database = database

    def run(self) -> bool:
        """Seal one portion; True when it was full, so more may wait."""
        with self._database.transaction() as session:
            head, sealed = audit_chain.seal(session)
        if sealed:
            log.info("audit sealed", count=sealed, head=str(head))
        return sealed >= audit_chain.BATCH
