"""Policies and retention per key; the audit chain."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# An event is written once; sealing adds its place in the chain, and nothing else ever changes.
_GUARD = """
CREATE FUNCTION audit_event_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.position IS NULL AND NEW.position IS NOT NULL
     AND (NEW.id, NEW.at, NEW.event, NEW.details) = (OLD.id, OLD.at, OLD.event, OLD.details)
     AND (NEW.job_id, NEW.api_key_id, NEW.caller_address)
         IS NOT DISTINCT FROM (OLD.job_id, OLD.api_key_id, OLD.caller_address)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'audit events are neither changed nor deleted';
END $$
"""
_TRIGGER = """
CREATE TRIGGER audit_event_guard BEFORE UPDATE OR DELETE ON audit_event
FOR EACH ROW EXECUTE FUNCTION audit_event_guard()
"""


def upgrade() -> None:
    """Apply."""
    op.add_column("api_key", sa.Column("policy", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.add_column("api_key", sa.Column("retention_days", sa.BigInteger(), nullable=True))
    op.add_column("audit_event", sa.Column("position", sa.BigInteger(), nullable=True))
    op.add_column("audit_event", sa.Column("digest", sa.LargeBinary(), nullable=True))
    op.create_index("uq_audit_event_position", "audit_event", ["position"], unique=True)
    op.create_index(
        "ix_audit_event_unsealed", "audit_event", ["id"], unique=False, postgresql_where=sa.text("position IS NULL")
    )
    op.create_index(
        "ix_job_finished_at", "job", ["finished_at"], unique=False, postgresql_where=sa.text("finished_at IS NOT NULL")
    )
    op.execute(_GUARD)
    op.execute(_TRIGGER)


def downgrade() -> None:
    """Revert."""
    op.execute("DROP TRIGGER audit_event_guard ON audit_event")
    op.execute("DROP FUNCTION audit_event_guard()")
    op.drop_index("ix_job_finished_at", table_name="job")
    op.drop_index("ix_audit_event_unsealed", table_name="audit_event")
    op.drop_index("uq_audit_event_position", table_name="audit_event")
    op.drop_column("audit_event", "digest")
    op.drop_column("audit_event", "position")
    op.drop_column("api_key", "retention_days")
    op.drop_column("api_key", "policy")
