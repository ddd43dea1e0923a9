"""The processes of a fleet on one machine, as data."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import SecretStr

from cli.supervisor.core_sets import core_sets, written
from cli.supervisor.process_spec import ProcessSpec
from shared.settings import Settings

# A worker's own drain may take all of drain_timeout; then it closes its connections.
WORKER_MARGIN_SECONDS = 5.0


@dataclass(frozen=True)
class Addresses:
    """Where the parts of the fleet are; the URLs carry passwords."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    api_port: int
    flower_port: int


def module(name: str, *arguments: str) -> tuple[str, ...]:
    """Return the command line that runs our module `name`; -P: never a folder of that name where the user stands."""
    return (sys.executable, "-P", "-m", name, *arguments)


def child_environment(settings: Settings, addresses: Addresses, encryption_key: str) -> dict[str, str]:
    """Return the environment of every child: what was set, wherever it was set, and what `up` decided on."""
    chosen = {name: _written(getattr(settings, name)) for name in settings.model_fields_set}
    given = {name: value for name, value in chosen.items() if value is not None}
    return settings.child_environment(**given | _decided(settings, addresses, encryption_key))


def _decided(settings: Settings, addresses: Addresses, encryption_key: str) -> dict[str, str]:
    return {
        "database_url": addresses.database_url,
        "redis_url": addresses.redis_url,
        "encryption_key": encryption_key,
        "state_dir": str(settings.state_dir.absolute()),
        "model_dir": str(settings.model_dir.absolute()),
        "cache_dir": str(settings.cache_dir.absolute()),
        "api_port": str(addresses.api_port),
        "flower_port": str(addresses.flower_port),
        "supervisor_pid": str(os.getpid()),
    }


def _written(value: object) -> str | None:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    return None if value is None else str(value)


def process_specs(settings: Settings, environment: Mapping[str, str]) -> list[ProcessSpec]:
    """Return the children in the order they start."""
    return [
        ProcessSpec("api", module("api"), environment),
        *worker_specs(settings, environment),
        ProcessSpec("maintenance", module("workers.maintenance"), environment),
        ProcessSpec("flower", module("cli.flower_process"), environment),
    ]


def worker_specs(settings: Settings, environment: Mapping[str, str]) -> list[ProcessSpec]:
    """Return one worker per core set."""
    return [
        ProcessSpec(
            "worker",
            module("workers", "--cores", written(cores)),
            environment,
            number=number,
            cores=cores,
            stop_seconds=settings.drain_timeout.total_seconds() + WORKER_MARGIN_SECONDS,
        )
        for number, cores in enumerate(core_sets(settings))
    ]
