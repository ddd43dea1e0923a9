"""The chain through audit events: each sealed event's digest covers it and its predecessor's digest.

Events are written without a place in the chain, so that submissions never wait for each other; maintenance seals what
was committed, in order, within seconds. What is changed, removed or slipped in afterwards breaks the chain at that
place; a removed end shows against a head noted elsewhere (maintenance logs it).
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shared.models import AuditEvent

BATCH = 1000
GENESIS = bytes(32)
_LOCK = 0x746D_6175_6469  # "tmaudi"
_POSITION_BYTES = 8


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain: how many events it holds, and the digest of the last."""

    position: int = 0
    digest: bytes = GENESIS

    def __str__(self) -> str:
        """Return it as it can be noted: `position:digest in hex`."""
        return f"{self.position}:{self.digest.hex()}"


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where the chain is broken, and how."""

    position: int
    problem: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found: where the chain ends, what is not sealed yet, and the first break if there is one."""

    head: Head
    unsealed: int
    broken: Break | None


def digest_of(event: AuditEvent, predecessor: Head) -> bytes:
    """Return the digest that seals `event` behind `predecessor`."""
    facts = {
        "id": event.id,
        "at": event.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "event": event.event,
        "job_id": event.job_id,
        "api_key_id": event.api_key_id,
        "caller_address": event.caller_address,
        "details": event.details,
    }
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    position = (predecessor.position + 1).to_bytes(_POSITION_BYTES, "big")
    return hashlib.sha256(predecessor.digest + position + canonical).digest()


def head(session: Session) -> Head:
    """Return the end of the chain."""
    query = select(AuditEvent.position, AuditEvent.digest).where(AuditEvent.position.is_not(None))
    last = session.execute(query.order_by(AuditEvent.position.desc()).limit(1)).one_or_none()
    return Head() if last is None else Head(int(last[0] or 0), bytes(last[1] or b""))


def seal(session: Session) -> tuple[Head, int]:
    """Seal one portion of the events without a place; return the new head and how many were sealed.

    One process seals at a time; another one finds nothing to do.
    """
    if not session.scalar(select(func.pg_try_advisory_xact_lock(_LOCK))):
        return Head(), 0
    end = head(session)
    waiting = select(AuditEvent).where(AuditEvent.position.is_(None)).order_by(AuditEvent.id).limit(BATCH)
    events = session.scalars(waiting).all()
    for event in events:
        end = Head(end.position + 1, digest_of(event, end))
        event.position, event.digest = end.position, end.digest
    return end, len(events)


def verify(session: Session, noted: Head | None = None) -> Verification:
    """Walk the whole chain; compare with a head `noted` earlier, if given."""
    end, broken = Head(), None
    for event in _sealed(session):
        broken = _break_at(event, end)
        if broken is not None:
            break
        end = Head(end.position + 1, bytes(event.digest or b""))
        if noted is not None and end.position == noted.position and end.digest != noted.digest:
            broken = Break(end.position, "its digest is not the one noted: the chain was written anew")
            break
    if broken is None and noted is not None and end.position < noted.position:
        broken = Break(
            end.position + 1, f"the chain ends here, {noted.position} events were noted: its end was removed"
        )
    unsealed = session.scalar(select(func.count()).where(AuditEvent.position.is_(None))) or 0
    return Verification(end, unsealed, broken)


def _sealed(session: Session) -> Iterator[AuditEvent]:
    last = 0
    while True:
        query = select(AuditEvent).where(AuditEvent.position > last).order_by(AuditEvent.position).limit(BATCH)
        events = session.scalars(query).all()
        if not events:
            return
        yield from events
        last = events[-1].position or last
        session.expunge_all()


def _break_at(event: AuditEvent, end: Head) -> Break | None:
    if event.position != end.position + 1:
        return Break(end.position + 1, "the event is missing")
    if event.digest != digest_of(event, end):
        return Break(end.position + 1, f"event {event.id} is not the one that was sealed: it was changed or slipped in")
    return None
