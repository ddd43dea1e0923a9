"""The tables: what is on record, and where each value may hold personal data (only `*_ciphertext` columns do)."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    SmallInteger,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from shared.states import JobState

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
STATES_SQL = ", ".join(f"'{state}'" for state in JobState)
JsonObject = dict[str, Any]


class Base(DeclarativeBase):
    """Declarative base: names of constraints are fixed, so that migrations can speak of them."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads it from the class
        str: Text,
        datetime: DateTime(timezone=True),
        bytes: LargeBinary,
        int: BigInteger,
        JsonObject: JSONB,
    }


class ApiKey(Base):
    """A caller. The secret itself is never stored, only its keyed digest."""

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    secret_digest: Mapped[bytes]
    digest_key_id: Mapped[str]
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    policy: Mapped[JsonObject | None]
    retention_days: Mapped[int | None]


class Job(Base):
    """One durable request. `fence` counts claims; whoever holds the newest one may finish the job."""

    __tablename__ = "job"
    __table_args__ = (
        UniqueConstraint("api_key_id", "idempotency_key"),
        CheckConstraint(f"state IN ({STATES_SQL})", name="state"),
        CheckConstraint("(state = 'running') = (lease_until IS NOT NULL)", name="lease_while_running"),
        Index("ix_job_queued", "run_after", postgresql_where=text("state = 'queued'")),
        Index("ix_job_lease_until", "lease_until", postgresql_where=text("state = 'running'")),
        Index("ix_job_deadline", "deadline", postgresql_where=text("state IN ('queued', 'running')")),
        Index("ix_job_api_key_id_id", "api_key_id", "id"),
        Index("ix_job_finished_at", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    api_key_id: Mapped[str] = mapped_column(ForeignKey("api_key.id"))
    state: Mapped[str] = mapped_column(server_default=JobState.QUEUED)
    idempotency_key: Mapped[str | None]
    input_digest: Mapped[bytes]
    correlation_id: Mapped[str]
    model: Mapped[str]
    model_version: Mapped[str | None]
    sampling: Mapped[JsonObject]
    client_metadata: Mapped[JsonObject]
    priority: Mapped[str]
    deadline: Mapped[datetime | None]
    prompt_ciphertext: Mapped[bytes | None]
    prompt_key_id: Mapped[str | None]
    prompt_characters: Mapped[int]
    attempt: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    max_attempts: Mapped[int] = mapped_column(SmallInteger)
    fence: Mapped[int] = mapped_column(server_default="0")
    isolate: Mapped[bool] = mapped_column(server_default=text("false"))
    worker_id: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    run_after: Mapped[datetime] = mapped_column(server_default=func.now())
    published_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    error_code: Mapped[str | None]
    error_message: Mapped[str | None]
    error_retryable: Mapped[bool | None]


class Attempt(Base):
    """One try at a job, written at claim and closed at its end (`outcome`: a job state, or `lost`)."""

    __tablename__ = "attempt"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    fence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    worker_id: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    error_code: Mapped[str | None]


class Result(Base):
    """The single final output of a job; its primary key is what makes a second one impossible."""

    __tablename__ = "result"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    fence: Mapped[int]
    output_ciphertext: Mapped[bytes | None]
    output_key_id: Mapped[str | None]
    finish_reason: Mapped[str]
    prompt_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    queue_ms: Mapped[float]
    prefill_ms: Mapped[float]
    decode_ms: Mapped[float]
    privacy_receipt: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Outbox(Base):
    """A message to publish: written with the job, deleted once the broker has it."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), index=True)
    queue: Mapped[str]
    priority: Mapped[int] = mapped_column(SmallInteger)
    not_before: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)


class AuditEvent(Base):
    """What happened, by whom, how much: counts and identifiers, never content.

    `position` and `digest` are its place in the chain, added once by maintenance; a trigger refuses any other change.
    """

    __tablename__ = "audit_event"
    __table_args__ = (
        Index("uq_audit_event_position", "position", unique=True),
        Index("ix_audit_event_unsealed", "id", postgresql_where=text("position IS NULL")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp(), index=True)
    event: Mapped[str]
    job_id: Mapped[str | None] = mapped_column(index=True)
    api_key_id: Mapped[str | None]
    caller_address: Mapped[str | None]
    details: Mapped[JsonObject]
    position: Mapped[int | None]
    digest: Mapped[bytes | None]


class FailureMetric(Base):
    """One failed attempt, for rates and alerts."""

    __tablename__ = "failure_metric"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp(), index=True)
    job_id: Mapped[str | None]
    code: Mapped[str]
    retryable: Mapped[bool]
    model: Mapped[str | None]
    model_version: Mapped[str | None]
    worker_id: Mapped[str | None]


class WorkerHeartbeat(Base):
    """The latest word of each worker: where it runs, what it serves, how busy it is."""

    __tablename__ = "worker_heartbeat"

    worker_id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    cores: Mapped[list[int]] = mapped_column(ARRAY(SmallInteger))
    model: Mapped[str]
    model_version: Mapped[str]
    status: Mapped[str]
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    figures: Mapped[JsonObject]


class ModelVersionRecord(Base):
    """A model version some worker has served, with the manifest it was loaded from."""

    __tablename__ = "model_version"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    version: Mapped[str]
    manifest: Mapped[JsonObject]
    first_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
