"""Logging: JSON lines for machines, colours on a terminal, and only fields on the allow-list.

Text from clients can not be logged: a field not named here is dropped and only its name is kept.
"""

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

ALLOWED_FIELDS = frozenset(
    """
    event level logger timestamp role job_id api_key_id correlation_id worker_id model model_version attempt fence code
    count queue state cores pid port host seconds milliseconds method path status_code slots tokens tokens_per_second
    error_type retry_in exit_code process version bytes precision field signal exception limit head
    """.split()  # noqa: SIM905  # a paragraph reads better than forty quoted words
)
NOISY_LIBRARIES = ("celery", "kombu", "amqp", "sqlalchemy", "httpx", "httpcore", "asyncio", "uvicorn")


def keep_allowed(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop every field that is not on the allow-list, and say which names were dropped."""
    dropped = sorted(event.keys() - ALLOWED_FIELDS)
    for name in dropped:
        del event[name]
    if dropped:
        event["field"] = ",".join(dropped)
    return event


def describe_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace `exc_info` by the chain of exception types and places: messages may quote data, places do not."""
    error = event.pop("exc_info", None)
    error = sys.exc_info()[1] if error is True else error[1] if isinstance(error, tuple) else error
    if isinstance(error, BaseException):
        event["exception"] = _places(error)
        event["error_type"] = type(error).__name__
    return event


def _places(error: BaseException) -> list[str]:
    places, frame = [], error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        places.append(f"{code.co_filename}:{frame.tb_lineno} {code.co_name}")
        frame = frame.tb_next
    return places


def _named(role: str) -> Processor:
    # Not a context variable: threads begin with an empty context.
    def add_role(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"role": role, **event}

    return add_role


class LibraryHandler(logging.Handler):
    """Hands records of other libraries on: a template without its arguments, or else just the place.

    A record without arguments may be a text with data already in it; only its place in the source is safe to show.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's template and, if there is one, its exception's type and places."""
        log = structlog.get_logger(record.name)
        said = str(record.msg)[:200] if record.args else f"{record.filename}:{record.lineno} {record.funcName}"
        log.log(record.levelno, said, logger=record.name, exc_info=record.exc_info or None)


def configure(role: str, *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Set up logging for this process; `role` (api, worker, ...) stands in every line."""
    target = stream or sys.stderr
    renderer: Processor = structlog.dev.ConsoleRenderer() if target.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _named(role),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            describe_exception,
            keep_allowed,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper(), logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[LibraryHandler()], level=logging.WARNING, force=True)
    for name in NOISY_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
