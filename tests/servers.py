"""Real servers for tests: one PostgreSQL and one Valkey per session, empty for every test."""

import base64
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from cli.embedded.placement import site_packages
from cli.embedded.postgres import PostgresServer
from cli.embedded.valkey import ValkeyServer, server_program
from shared import migrate
from shared.database import Database
from shared.errors import ServerStartError
from shared.models import Base
from shared.settings import Settings


def discard(server: PostgresServer) -> None:
    """Stop a PostgreSQL and remove what it keeps outside its state directory (under root)."""
    server.stop()
    if server.placement.home != server.directory:
        shutil.rmtree(server.placement.home, ignore_errors=True)


@pytest.fixture(scope="session")
def servers_dir() -> Iterator[Path]:
    """Where the servers of this session live. Without the servers tests are skipped, but fail in CI."""
    try:
        site_packages(), server_program()
    except ServerStartError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(missing.message)
    path = Path(tempfile.mkdtemp(prefix="tokenmill-servers-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def postgres_url(servers_dir: Path) -> Iterator[str]:
    """URL of a migrated database."""
    server = PostgresServer(servers_dir)
    try:
        server.start()
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # the machine's crash is not tested, processes' are
            connection.execute("SELECT pg_reload_conf()")
        migrate.upgrade(server.url)
        yield server.url
    finally:
        discard(server)


@pytest.fixture(scope="session")
def redis_url(servers_dir: Path) -> Iterator[str]:
    server = ValkeyServer(servers_dir)
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    """A database whose tables are all empty."""
    database = Database(postgres_url)
    tables = ", ".join(f'"{table.name}"' for table in Base.metadata.sorted_tables)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE".encode())
    yield database
    database.close()


@pytest.fixture
def redis_client(redis_url: str) -> Iterator["redis.Redis"]:
    """A client of an empty server."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def encryption_key() -> str:
    return "test:" + base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
def settings(postgres_url: str, redis_url: str, encryption_key: str, tmp_path: Path) -> Settings:
    """Settings that name the test servers, with a state directory and a key of their own."""
    return Settings.model_validate(
        {
            "database_url": postgres_url,
            "redis_url": redis_url,
            "state_dir": tmp_path / "state",
            "encryption_key": encryption_key,
        }
    )
