"""Workers as the database knows them: heartbeats and the model versions they serve."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Select, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared.models import JsonObject, ModelVersionRecord, WorkerHeartbeat

FORGET_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a worker says of itself. `status`: starting, ready, draining or stopped."""

    worker_id: str
    host: str
    pid: int
    cores: Sequence[int]
    model: str
    model_version: str
    status: str
    started_at: datetime
    figures: JsonObject


def beat(session: Session, heartbeat: Heartbeat) -> None:
    """Write or refresh the worker's row."""
    values = {name: getattr(heartbeat, name) for name in Heartbeat.__slots__} | {"cores": list(heartbeat.cores)}
    statement = insert(WorkerHeartbeat).values(**values, seen_at=func.now())
    changed = {name: statement.excluded[name] for name in (*values, "seen_at") if name != "worker_id"}
    session.execute(statement.on_conflict_do_update(index_elements=[WorkerHeartbeat.worker_id], set_=changed))


def remember_version(session: Session, name: str, version: str, manifest: JsonObject) -> None:
    """Record that a worker serves this model version."""
    row = {"id": f"{name}@{version}", "name": name, "version": version, "manifest": manifest}
    session.execute(insert(ModelVersionRecord).values(row).on_conflict_do_nothing())


def live(session: Session, within: timedelta, *, model: str | None = None) -> Sequence[WorkerHeartbeat]:
    """Return workers that were ready and spoke `within` the last while, optionally those serving `model`."""
    query = _recent(within).where(WorkerHeartbeat.status == "ready")
    if model is not None:
        query = query.where(WorkerHeartbeat.model == model)
    return session.scalars(query).all()


def recent(session: Session, within: timedelta) -> Sequence[WorkerHeartbeat]:
    """Return workers that spoke `within` the last while and have not said that they stopped."""
    return session.scalars(_recent(within).where(WorkerHeartbeat.status != "stopped")).all()


def _recent(within: timedelta) -> Select[WorkerHeartbeat]:
    recently = WorkerHeartbeat.seen_at > func.now() - within
    return select(WorkerHeartbeat).where(recently).order_by(WorkerHeartbeat.worker_id)


def forget_silent(session: Session) -> None:
    """Delete rows of workers silent for an hour."""
    session.execute(delete(WorkerHeartbeat).where(WorkerHeartbeat.seen_at < func.now() - FORGET_AFTER))
