"""The eraser: content of jobs past their retention goes."""

import structlog

from shared import retention
from shared.database import Database

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 60.0


class Eraser:
    """Erases old content. Any number may run side by side."""

    def __init__(self, database: Database, default_days: int | None) -> None:
        """Work on `database`; `default_days` holds for keys without a retention of their own."""
        self._database, self._default_days = database, default_days

    def run(self) -> bool:
        """Erase one portion; True when it was full, so more may wait."""
        with self._database.transaction() as session:
            erased = retention.erase_old_content(session, self._default_days)
        if erased:
            log.info("old content erased", count=erased)
        return erased >= retention.BATCH
