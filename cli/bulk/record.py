"""One line of the result file."""

import json
from typing import Any

from cli.bulk.document import Document, Fault
from shared.states import JobState

Record = dict[str, Any]
FIRST_BYTES = b'{"document": '


def of_job(document: Document, key: str, job: dict[str, Any]) -> Record:
    """Return the record of a job in its terminal state, as the API shows it."""
    return _record(document, key, job["status"], {**job, "job_id": job["id"]})


def of_fault(document: Document, key: str, fault: Fault) -> Record:
    """Return the record of a document that led to no job."""
    error = {"code": fault.code, "message": fault.message, "retryable": False}
    return _record(document, key, JobState.FAILED.value, {"error": error})


def _record(document: Document, key: str, status: str, facts: dict[str, Any]) -> Record:
    names = ("output", "finish_reason", "usage", "privacy", "job_id", "error")
    head = {"document": document.name, "index": document.index, "status": status}
    return {**head, **{name: facts.get(name) for name in names}, "key": key}


def completed(record: Record) -> bool:
    """Whether the document needs no further run."""
    return record.get("status") == JobState.COMPLETED


def to_line(record: Record) -> bytes:
    """Serialise to one UTF-8 line. What is no Unicode (file names can be any bytes) becomes JSON escapes."""
    return json.dumps(record, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def from_line(line: bytes) -> Record | None:
    """Parse a line; None when it is torn or no record of ours."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("key"), str) else None
