"""Bring a database to the schema this version needs. Processes that start together wait for one another."""

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

import migrations
from shared.database import database_url
from shared.models import Base

LOCK = 0x746D6D69  # one migration at a time, whoever starts it


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade(url: str) -> None:
    """Apply every revision that is missing. A no-op on an up-to-date database."""
    engine = create_engine(database_url(url), poolclass=NullPool, hide_parameters=True)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": LOCK})
        connection.commit()
        command.upgrade(_config(connection), "head")
        connection.commit()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK})
        connection.commit()


def differences(connection: Connection) -> list[object]:
    """Return what autogenerate would still change: empty when migrations and models agree."""
    options = {"compare_type": True, "compare_server_default": True}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata))


def new_revision(url: str, message: str) -> None:
    """Write a new revision from the difference between database and models (for developers)."""
    engine = create_engine(database_url(url), poolclass=NullPool)
    with engine.connect() as connection:
        command.revision(_config(connection), message=message, autogenerate=True)
