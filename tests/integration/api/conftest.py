"""The API over real servers, with a small installed model."""

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from starlette.testclient import TestClient

from api.app import create_app
from shared import api_keys, structured_logging
from shared.crypto import KeyRing, generate_key
from shared.database import Database
from shared.settings import Settings
from tests.integration.api import tiny_model
from tests.integration.api.caller import Api

Serve = Callable[..., AbstractContextManager[Api]]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    tiny_model.install(path)
    return path


def settings_for(postgres_url: str, redis_url: str, model_dir: Path, state_dir: Path) -> dict[str, Any]:
    return {
        "database_url": postgres_url,
        "redis_url": redis_url,
        "state_dir": state_dir,
        "model_dir": model_dir,
        "model": tiny_model.NAME,
        "encryption_key": generate_key(),
    }


@pytest.fixture
def api_settings(postgres_url: str, redis_url: str, model_dir: Path, tmp_path: Path) -> dict[str, Any]:
    return settings_for(postgres_url, redis_url, model_dir, tmp_path / "state")


@contextmanager
def serving(values: dict[str, Any], database: Database, **changes: object) -> Iterator[Api]:
    """An API with a key of its own in `database`; `changes` are settings only it sees."""
    keyring = KeyRing.from_setting(values["encryption_key"])
    with database.transaction() as session:
        key = api_keys.create(session, keyring, "test", ["submit", "read"])
    app = create_app(Settings.model_validate({**values, **changes}))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Api(client, database, keyring, key)


@pytest.fixture
def serve(api_settings: dict[str, Any], database: Database) -> Serve:
    """Start an API; its settings can be changed by keyword."""
    return partial(serving, api_settings, database)


@pytest.fixture
def api(serve: Serve) -> Iterator[Api]:
    with serve() as running:
        yield running


@pytest.fixture(autouse=True)
def logs() -> Iterator[io.StringIO]:
    """Everything logged, as a process of the fleet would write it."""
    stream = io.StringIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    structured_logging.configure("api", level="DEBUG", stream=stream)
    yield stream
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
