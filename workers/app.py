"""A worker process, composed: its parts are built here and nowhere else."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog
from celery import Celery
from pydantic import SecretStr
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from shared import api_keys, model_registry, workers_repository
from shared.celery_app import create_celery
from shared.crypto import KeyRing
from shared.database import Database
from shared.errors import ConfigurationError
from shared.model_registry import ModelVersion
from shared.outbox import queue_for
from shared.privacy import Scrubber
from shared.settings import Settings
from shared.worker_memory import WorkerMemory
from workers import tasks
from workers.connections import open_database
from workers.consumer import Consumer
from workers.engine.generations import Generations
from workers.figures import Figures
from workers.heartbeat import Heartbeat
from workers.held_jobs import HeldJobs
from workers.identity import Identity
from workers.idle_unload import IdleUnload
from workers.isolation_gate import IsolationGate
from workers.job_content import JobContent
from workers.job_runner import JobRunner
from workers.job_store import JobStore
from workers.loaded_model import LoadedModel
from workers.memory_watch import MemoryWatch
from workers.stop_signals import StopSignals
from workers.worker import Worker

log = structlog.get_logger(__name__)


class Load(Protocol):
    """Loads a model version for a number of threads."""

    def __call__(self, version: ModelVersion, settings: Settings, *, threads: int) -> LoadedModel:
        """Return it, loaded but not started."""
        ...


def _keyring(key: SecretStr | None) -> KeyRing:
    return KeyRing.from_setting(None if key is None else key.get_secret_value())


def _tell(database: Database, write: Callable[[Session], None]) -> None:
    """Write what is good to know but not needed to start."""
    try:
        with database.transaction() as session:
            write(session)
    except SQLAlchemyError as error:
        log.warning("database away at start", error_type=type(error).__name__)


def _check_key(database: Database, keyring: KeyRing) -> None:
    """Refuse to start with a key that opens nothing of this fleet: every job this worker takes would fail.

    Raises:
        ConfigurationError: the API keys of this fleet were made under other encryption keys.
    """
    in_use: set[str] = set()
    _tell(database, lambda session: in_use.update(api_keys.encryption_keys_in_use(session)))
    if in_use and in_use.isdisjoint(keyring.key_ids):
        raise ConfigurationError(
            "TOKENMILL_ENCRYPTION_KEY is not the one of this fleet: use the same value on every host",
            field="TOKENMILL_ENCRYPTION_KEY",
        )


def _announce(database: Database, identity: Identity, version: ModelVersion) -> None:
    manifest = version.manifest.model_dump(mode="json")
    _tell(database, lambda session: workers_repository.beat(session, identity.heartbeat("starting", {})))
    _tell(
        database, lambda session: workers_repository.remember_version(session, version.name, version.version, manifest)
    )


def create_worker(
    settings: Settings, cores: tuple[int, ...], signals: StopSignals, *, load: Load = LoadedModel.load
) -> Worker:
    """Build a worker with the model of `settings` loaded, one thread per core, and nothing started.

    `load` is the seam to the runtime: tests load a model without weights.

    Raises:
        TokenmillError: a setting is missing, or the model is missing, damaged, of a kind that cannot be served, or too
            large for the memory.
    """
    version = model_registry.resolve(settings.model, settings.model_dir)
    keyring, celery = _keyring(settings.encryption_key), create_celery(settings, model=version.name)
    database = open_database(settings, "worker")
    try:
        _check_key(database, keyring)
        identity = Identity(cores, version.name, f"{version.name}@{version.version}")
        _announce(database, identity, version)
        limit = _memory_limit(version, settings, cores)
        model = load(version, settings, threads=len(cores))
        return _compose(settings, signals, _Parts(database, keyring, celery, identity, model, limit))
    except BaseException:
        database.close()
        raise


@dataclass(frozen=True, slots=True)
class _Parts:
    database: Database
    keyring: KeyRing
    celery: Celery
    identity: Identity
    model: LoadedModel
    memory_limit: int


def _memory_limit(version: ModelVersion, settings: Settings, cores: tuple[int, ...]) -> int:
    """Return the bytes this worker may take; raises what `WorkerMemory.limit` raises."""
    workers = settings.workers or max(1, (os.cpu_count() or 1) // len(cores))
    return WorkerMemory.planned(version.manifest, settings).limit(settings, workers)


def _concurrency(slots: int) -> int:
    """Return the jobs a worker holds: more than it computes, so that a free slot is filled at once."""
    return slots + max(2, slots // 4)


def _compose(settings: Settings, signals: StopSignals, parts: _Parts) -> Worker:
    database, identity, model = parts.database, parts.identity, parts.model
    held, gate = HeldJobs(settings.lease), IsolationGate()
    memory = MemoryWatch(model.engine, parts.memory_limit)
    generations = Generations(model.engine, model.vocabulary)
    runner = JobRunner(
        store=JobStore(database, identity.worker_id, settings.lease),
        content=JobContent(parts.keyring, Scrubber.configured(settings), model.tokenizer, model.vocabulary),
        engine=generations,
        held=held,
        gate=gate,
        model_version=identity.model_version,
    )
    tasks.register(parts.celery, runner.run)
    heartbeat = Heartbeat(
        # A connection of its own: a full pool must not cost a lease.
        database=open_database(settings, "worker heartbeat", pool_size=1),
        settings=settings,
        identity=identity,
        held=held,
        engine=generations,
        figures=Figures(model.engine, memory.limit).read,
    )
    consumer = Consumer(
        parts.celery,
        name=identity.worker_id,
        queue=queue_for(identity.model),
        concurrency=_concurrency(model.engine.config.max_num_seqs),
    )
    return Worker(
        engine=model.engine,
        consumer=consumer,
        heartbeat=heartbeat,
        held=held,
        gate=gate,
        signals=signals,
        idle=IdleUnload(model.engine, settings.idle_unload),
        memory=memory,
        drain_timeout=settings.drain_timeout,
    )
