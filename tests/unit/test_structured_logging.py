import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from shared import structured_logging

CANARY = "canary-7f3a-patient-says"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    target = io.StringIO()
    structured_logging.configure("test", level="DEBUG", stream=target)
    yield target
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.basicConfig(handlers=[], force=True)


def test_fields_off_the_list_are_dropped_and_named(stream: io.StringIO) -> None:
    structlog.get_logger().info("job_claimed", job_id="job_1", prompt=CANARY)
    line = json.loads(stream.getvalue())
    assert line["job_id"] == "job_1"
    assert line["role"] == "test"
    assert line["field"] == "prompt"
    assert CANARY not in stream.getvalue()


def test_exceptions_show_places_not_messages(stream: io.StringIO) -> None:
    try:
        int(CANARY)
    except ValueError:
        structlog.get_logger().exception("step_failed")
    line = json.loads(stream.getvalue())
    assert line["error_type"] == "ValueError"
    assert any("test_exceptions_show_places" in place for place in line["exception"])
    assert CANARY not in stream.getvalue()


def test_other_libraries_show_their_template_only(stream: io.StringIO) -> None:
    logging.getLogger("somelibrary").warning("task failed with %s", CANARY)
    assert json.loads(stream.getvalue())["event"] == "task failed with %s"
    assert CANARY not in stream.getvalue()


def test_ready_made_messages_of_other_libraries_are_withheld(stream: io.StringIO) -> None:
    logging.getLogger("somelibrary").warning(f"task failed with {CANARY}")  # noqa: G004  # the fault to guard against
    assert CANARY not in stream.getvalue()
    assert json.loads(stream.getvalue())["logger"] == "somelibrary"
