"""Alembic's entry: applies the revisions in `versions/` over the connection `shared.migrate` hands in."""

from alembic import context

from shared.models import Base

config = context.config


def run() -> None:
    """Run the migrations on the connection given, inside the caller's transaction."""
    context.configure(
        connection=config.attributes["connection"],
        target_metadata=Base.metadata,
        compare_type=True,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
