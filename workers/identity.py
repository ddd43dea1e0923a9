"""Who a worker is: an id no other process ever had, where it runs, what it serves."""

import os
import secrets
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shared.models import JsonObject
from shared.workers_repository import Heartbeat


def _new_worker_id() -> str:
    # Process ids come again, in containers nearly always the same one; Celery wants the form name@host.
    return f"worker-{os.getpid()}-{secrets.token_hex(3)}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class Identity:
    """One worker process serving one model version on one core set."""

    cores: tuple[int, ...]
    model: str
    model_version: str
    worker_id: str = field(default_factory=_new_worker_id)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def heartbeat(self, status: str, figures: JsonObject) -> Heartbeat:
        """Return this worker's row."""
        return Heartbeat(
            worker_id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            cores=self.cores,
            model=self.model,
            model_version=self.model_version,
            status=status,
            started_at=self.started_at,
            figures=figures,
        )
