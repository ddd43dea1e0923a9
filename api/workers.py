"""`GET /v1/workers`: the workers of the whole fleet, on all hosts, for operators."""

from typing import Any, Literal

from fastapi import APIRouter, Depends
from pydantic import AwareDatetime, BaseModel

from api.auth import require
from api.dependencies import Provided
from shared import workers_repository

router = APIRouter(tags=["operations"])
KNOWN_HEARTBEATS = 3


class WorkerView(BaseModel):
    """One worker as it last described itself; `figures` are its load and counters."""

    worker_id: str
    host: str
    pid: int
    cores: list[int]
    model: str
    model_version: str
    status: str
    started_at: AwareDatetime
    seen_at: AwareDatetime
    figures: dict[str, Any]


class WorkerList(BaseModel):
    """Workers that spoke lately."""

    object: Literal["list"] = "list"
    data: list[WorkerView]


@router.get("/v1/workers", dependencies=[Depends(require("admin"))])
def list_workers(services: Provided) -> WorkerList:
    """List the workers whose heartbeat is fresh. Needs the scope `admin`."""
    with services.database.transaction() as session:
        rows = workers_repository.recent(session, services.settings.heartbeat * KNOWN_HEARTBEATS)
        return WorkerList(data=[WorkerView.model_validate(row, from_attributes=True) for row in rows])
