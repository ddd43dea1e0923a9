"""What a worker checks before it takes a job."""

from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import SecretStr

from shared import api_keys
from shared.crypto import KeyRing, generate_key
from shared.database import Database
from shared.errors import ConfigurationError
from shared.settings import Settings
from tests import fake_model
from workers.app import create_worker
from workers.stop_signals import StopSignals

pytestmark = pytest.mark.servers


class Loaded(Exception):  # noqa: N818  # no error: the point a start with the right key reaches
    """The model would be loaded now."""


def load(*_: object, **__: object) -> NoReturn:
    raise Loaded


@pytest.fixture
def fleet_key(database: Database) -> str:
    """An encryption key under which the fleet's first API key was made."""
    key = generate_key()
    with database.transaction() as session:
        api_keys.create(session, KeyRing.from_setting(key), "first", ["submit"])
    return key


@pytest.fixture
def worker_settings(settings: Settings, tmp_path: Path) -> Settings:
    fake_model.install(tmp_path / "models")
    return settings.model_copy(update={"model_dir": tmp_path / "models", "model": fake_model.NAME})


def start(settings: Settings, key: str) -> None:
    own = settings.model_copy(update={"encryption_key": SecretStr(key)})
    create_worker(own, (0,), StopSignals(), load=load)


def test_a_key_of_another_fleet_is_refused(worker_settings: Settings, fleet_key: str) -> None:
    assert fleet_key
    with pytest.raises(ConfigurationError) as caught:
        start(worker_settings, generate_key())
    assert caught.value.field == "TOKENMILL_ENCRYPTION_KEY"


def test_a_rotated_key_is_welcome(worker_settings: Settings, fleet_key: str) -> None:
    with pytest.raises(Loaded):
        start(worker_settings, f"{generate_key()},{fleet_key}")


@pytest.mark.usefixtures("database")
def test_an_empty_fleet_takes_any_key(worker_settings: Settings) -> None:
    with pytest.raises(Loaded):
        start(worker_settings, generate_key())


@pytest.mark.usefixtures("database")
def test_a_worker_that_would_not_fit_its_memory_does_not_load(worker_settings: Settings) -> None:
    tight = worker_settings.model_copy(update={"worker_memory_mb": 500})
    with pytest.raises(ConfigurationError, match=r"other caches 768.*lower prefix_cache_mb or kv_swap_mb") as caught:
        start(tight, generate_key())
    assert caught.value.field == "worker_memory_mb"
    with pytest.raises(Loaded):
        start(tight.model_copy(update={"prefix_cache_mb": 64, "kv_swap_mb": 64}), generate_key())
