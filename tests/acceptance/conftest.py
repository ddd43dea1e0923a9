"""Fleets of real processes for acceptance tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from shared.database import Database
from shared.settings import Settings
from tests import fake_model
from tests.fleet import FleetProcess, Jobs, StartProcess, keyring_of


@pytest.fixture
def fleet_settings(settings: Settings, tmp_path: Path) -> Settings:
    fake_model.install(tmp_path / "models")
    return settings.model_copy(update={"model_dir": tmp_path / "models", "model": fake_model.NAME})


@pytest.fixture
def jobs(database: Database, fleet_settings: Settings) -> Jobs:
    return Jobs(database, keyring_of(fleet_settings))


@pytest.fixture
def start(
    fleet_settings: Settings,
    tmp_path: Path,
    redis_client: "redis.Redis",
    database: Database,  # noqa: ARG001  # tables are emptied before any process holds them
) -> Iterator[StartProcess]:
    """Start a process and wait until it is ready; all are killed at the end."""
    assert redis_client.dbsize() == 0
    with ExitStack() as stack:

        def run(module: str, *arguments: str, **overrides: str) -> FleetProcess:
            log = tmp_path / f"{module}-{len(list(tmp_path.glob('*.log')))}.log"
            process = stack.enter_context(
                FleetProcess(module, *arguments, settings=fleet_settings, log=log, **overrides)
            )
            process.wait_for("ready")
            return process

        yield run


@pytest.fixture
def start_worker(start: StartProcess) -> StartProcess:
    def run(*, step_seconds: float = 0.0, **overrides: str) -> FleetProcess:
        values = {"max_num_seqs": "4", "lease": "2", "heartbeat": "0.5", **overrides}
        return start("tests.fake_worker", "0", str(step_seconds), **values)

    return run


@pytest.fixture
def maintenance(start: StartProcess) -> FleetProcess:
    return start("workers.maintenance", republish_after="1")
