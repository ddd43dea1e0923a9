"""Audit events: identifiers and counts of what happened."""

from sqlalchemy.orm import Session

from shared.models import AuditEvent, JsonObject


def record(  # noqa: PLR0913  # one keyword per audited fact
    session: Session,
    event: str,
    *,
    details: JsonObject,
    job_id: str | None = None,
    api_key_id: str | None = None,
    caller_address: str | None = None,
) -> None:
    """Write one event in the caller's transaction, so that it stands exactly when the deed does."""
    session.add(
        AuditEvent(event=event, job_id=job_id, api_key_id=api_key_id, caller_address=caller_address, details=details)
    )
