"""Messages waiting for the broker. PostgreSQL is the record; what Redis loses is written here again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared.models import Job, Outbox
from shared.states import JobState, Priority


@dataclass(frozen=True, slots=True)
class Message:
    """What goes to the broker: a job id, and where and how urgently it goes."""

    job_id: str
    queue: str
    priority: int


Publish = Callable[[Message], None]


def queue_for(model: str) -> str:
    """Name of the queue whose workers serve `model`."""
    return f"tokenmill.{model}"


def enqueue(session: Session, jobs: Sequence[Job], *, not_before: datetime | None = None) -> None:
    """Write one outbox row per job, to be published after the transaction and not before `not_before`."""
    if not jobs:
        return
    timing = {} if not_before is None else {"not_before": not_before}
    rows = [
        {
            "job_id": job.id,
            "queue": queue_for(job.model),
            "priority": Priority(job.priority).broker_level,
            **timing,
        }
        for job in jobs
    ]
    session.execute(insert(Outbox).values(rows))


def relay(session: Session, publish: Publish, *, limit: int = 500, job_ids: Sequence[str] | None = None) -> int:
    """Publish due messages and delete them in one transaction; return how many.

    A crash between publish and commit publishes a message twice, which the claim makes harmless. Rows another relay
    holds are skipped. An exception of `publish` rolls the transaction back, so that the rest stays written.
    """
    due = select(Outbox.id).where(Outbox.not_before <= func.now())
    if job_ids is not None:
        due = due.where(Outbox.job_id.in_(job_ids))
    due = due.order_by(Outbox.priority, Outbox.id).limit(limit).with_for_update(skip_locked=True)
    taken = session.execute(
        delete(Outbox).where(Outbox.id.in_(due)).returning(Outbox.job_id, Outbox.queue, Outbox.priority)
    ).all()
    # RETURNING keeps no order; urgent messages first, ids rise with time.
    for job_id, queue, priority in sorted(taken, key=lambda row: (row.priority, row.job_id)):
        publish(Message(job_id, queue, priority))
    _note_publication(session, [row.job_id for row in taken])
    return len(taken)


def _note_publication(session: Session, job_ids: Sequence[str]) -> None:
    session.execute(
        update(Job).where(Job.id.in_(job_ids), Job.state == JobState.QUEUED).values(published_at=func.now())
    )
