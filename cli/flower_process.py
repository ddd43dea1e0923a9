"""`python -m cli.flower_process`: Flower on loopback, behind its login, read-only, with memory in the state directory.

The login reaches Flower through this process's memory: neither arguments nor environment show it.
"""

import logging
import signal
import sys
from types import FrameType
from typing import NoReturn

from cli.embedded.files import private_directory
from cli.embedded.ports import LOOPBACK, PortBook
from cli.supervisor.keys import flower_login
from shared import structured_logging
from shared.celery_app import create_celery
from shared.errors import ConfigurationError, TokenmillError
from shared.parent_watch import end_with_parent
from shared.process import harden
from shared.settings import Settings, get_settings

COLUMNS = "name,uuid,state,args,received,started,runtime,worker"
SAVE_INTERVAL_MS = 10_000
MAX_TASKS = 50_000
FORGET_WORKERS_SECONDS = 600


def _options(settings: Settings, port: int) -> dict[str, object]:
    return {
        "address": LOOPBACK,
        "port": port,
        "basic_auth": [flower_login(settings.state_dir)],
        "persistent": True,
        "db": str(settings.state_dir / "flower.db"),
        "state_save_interval": SAVE_INTERVAL_MS,
        "read_only": True,
        "tasks_columns": COLUMNS,
        "max_tasks": MAX_TASKS,
        "purge_offline_workers": FORGET_WORKERS_SECONDS,
    }


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def serve(settings: Settings) -> None:
    """Run Flower until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: Flower is not installed, or the Redis URL is missing.
    """
    try:
        from flower.app import Flower  # noqa: PLC0415  # an extra; and importing it defines tornado's options
        from flower.command import extract_settings, options  # noqa: PLC0415
        from flower.urls import settings as web_settings  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError("Flower is not installed: pip install 'tokenmill[embedded]'") from error
    port = settings.flower_port or PortBook(private_directory(settings.state_dir)).claim("flower")
    for name, value in _options(settings, port).items():
        setattr(options, name, value)
    extract_settings()
    flower = Flower(capp=create_celery(settings), options=options, **web_settings)
    try:
        flower.start_http_server()
        flower.start()
    finally:
        flower.stop()


def main() -> int:
    """Run the process; return the exit code."""
    harden()
    settings = get_settings()
    structured_logging.configure("flower", level=settings.log_level)
    logging.getLogger("tornado.access").disabled = True
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    end_with_parent(settings.supervisor_pid)
    try:
        serve(settings)
    except TokenmillError as error:
        sys.stderr.write(f"tokenmill: {error.message}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
