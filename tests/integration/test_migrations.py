import pytest

from shared import migrate
from shared.database import Database

pytestmark = pytest.mark.servers


def test_migrations_and_models_agree(database: Database) -> None:
    with database.engine.connect() as connection:
        assert migrate.differences(connection) == []


def test_upgrading_again_changes_nothing(database: Database, postgres_url: str) -> None:
    migrate.upgrade(postgres_url)
    with database.engine.connect() as connection:
        assert migrate.differences(connection) == []
