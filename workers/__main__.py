"""`python -m workers --cores 0-1 [--model NAME]`: one worker, pinned to its cores before anything starts threads."""

import argparse
import os
import sys

import structlog

from shared import structured_logging
from shared.errors import TokenmillError
from shared.parent_watch import end_with_parent
from shared.process import harden
from shared.settings import Settings, get_settings
from workers.stop_signals import StopSignals
from workers.topology import allowed_cores, parse_cores, pin

log = structlog.get_logger(__name__)

EXIT_FAILED = 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers", description="Serve a model's queue on a set of cores.")
    parser.add_argument("--cores", help="cores to run on: 0, 0-3 or 0,2 (default: all this process may use)")
    parser.add_argument("--model", help="installed model to serve (default: TOKENMILL_MODEL)")
    return parser.parse_args()


def _serve(settings: Settings, cores: tuple[int, ...]) -> bool:
    signals = StopSignals()
    signals.install()
    pin(cores)
    end_with_parent(settings.supervisor_pid)
    os.environ |= {
        "ORT_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": str(len(cores)),
    }
    from workers.app import create_worker  # noqa: PLC0415  # imports what starts threads; those must inherit the pins

    return create_worker(settings, cores, signals).run()


def main() -> int:
    """Run a worker; return the exit code."""
    harden()
    arguments, settings = _arguments(), get_settings()
    structured_logging.configure("worker", level=settings.log_level)
    try:
        cores = parse_cores(arguments.cores) if arguments.cores else allowed_cores()
        wanted = settings.model_copy(update={"model": arguments.model} if arguments.model else {})
        clean = _serve(wanted, cores)
    except TokenmillError as error:
        log.error("worker cannot start", code=error.code, field=error.field)  # noqa: TRY400  # the message says it all
        sys.exit(error.message)
    if not clean:
        # A thread is stuck, perhaps in a call to a server that is gone; the leases see to the rest.
        os._exit(EXIT_FAILED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
