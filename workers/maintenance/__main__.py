"""`python -m workers.maintenance`: the duties nobody waits for, until told to stop. Any number may run."""

import sys
import time
from functools import partial

import structlog

from shared import structured_logging
from shared.celery_app import broker_url, create_celery, publish
from shared.database import Database
from shared.errors import TokenmillError
from shared.parent_watch import end_with_parent
from shared.process import harden
from shared.settings import Settings, get_settings
from workers.connections import open_database
from workers.maintenance import eraser, reaper, relay, republisher, sealer
from workers.maintenance.periodic import Periodic
from workers.stop_signals import StopSignals

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.2
STOP_SECONDS = 10.0


def duties(settings: Settings, database: Database) -> list[Periodic]:
    """Return everything maintenance does.

    Raises:
        ConfigurationError: no broker is set.
    """
    app, broker = create_celery(settings), republisher.open_broker(broker_url(settings))
    sender = relay.Relay(database, partial(publish, app))
    mender = republisher.Republisher(database, broker, settings.republish_after)
    return [
        Periodic("relay", sender.run, relay.INTERVAL_SECONDS),
        Periodic("reaper", reaper.Reaper(database).run, reaper.INTERVAL_SECONDS),
        Periodic("republisher", mender.run, republisher.INTERVAL_SECONDS),
        Periodic("sealer", sealer.Sealer(database).run, sealer.INTERVAL_SECONDS),
        Periodic("eraser", eraser.Eraser(database, settings.retention_days).run, eraser.INTERVAL_SECONDS),
    ]


def _serve(settings: Settings, signals: StopSignals) -> bool:
    database = open_database(settings, "maintenance")
    running = duties(settings, database)
    for duty in running:
        duty.start()
    log.info("maintenance ready")
    while not signals.asked:
        time.sleep(TICK_SECONDS)
    for duty in running:
        duty.stop()
    stopped = [duty.join(STOP_SECONDS) for duty in running]
    database.close()
    log.info("maintenance stopped")
    return all(stopped)


def main() -> int:
    """Run maintenance; return the exit code."""
    harden()
    settings, signals = get_settings(), StopSignals()
    structured_logging.configure("maintenance", level=settings.log_level)
    signals.install()
    end_with_parent(settings.supervisor_pid)
    try:
        return 0 if _serve(settings, signals) else 1
    except TokenmillError as error:
        log.error("maintenance cannot start", code=error.code, field=error.field)  # noqa: TRY400  # the message says it all
        sys.exit(error.message)


if __name__ == "__main__":
    sys.exit(main())
