"""The audit chain: whatever is changed, removed or slipped in is found at its place."""

import threading

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from api import audit as audit_command
from shared import audit, audit_chain
from shared.audit_chain import Head
from shared.database import Database
from shared.settings import Settings
from tests.command_line import environment_of
from workers.maintenance.sealer import Sealer

pytestmark = pytest.mark.servers
EXCHANGED = """
UPDATE audit_event SET position = CASE position WHEN 2 THEN 103 ELSE 102 END WHERE position IN (2, 3);
UPDATE audit_event SET position = position - 100 WHERE position > 100
"""


def write(database: Database, count: int) -> None:
    with database.transaction() as session:
        for number in range(count):
            audit.record(session, "job.submitted", job_id=f"job_{number}", details={"n": number, "ms": 0.1, "é": "中"})


def sealed(database: Database, count: int = 5) -> Head:
    write(database, count)
    Sealer(database).run()
    with database.transaction() as session:
        return audit_chain.head(session)


def found(database: Database, noted: Head | None = None) -> audit_chain.Verification:
    with database.transaction() as session:
        return audit_chain.verify(session, noted)


def tamper(database: Database, statement: str) -> None:
    """Do what only somebody with the rights of the table's owner can."""
    with database.transaction() as session:
        session.execute(text("ALTER TABLE audit_event DISABLE TRIGGER audit_event_guard"))
        session.execute(text(statement))
        session.execute(text("ALTER TABLE audit_event ENABLE TRIGGER audit_event_guard"))


def test_sealed_events_verify_and_new_ones_wait(database: Database) -> None:
    head = sealed(database)
    write(database, 2)
    result = found(database, head)
    assert (result.head, result.unsealed, result.broken) == (head, 2, None)
    assert head.position == 5


def test_sealing_goes_on_where_it_ended(database: Database) -> None:
    first, second = sealed(database, 3), sealed(database, 4)
    assert second.position == first.position + 4
    assert found(database, first).broken is None


def test_many_sealers_at_once_make_one_chain(database: Database) -> None:
    write(database, 50)
    threads = [threading.Thread(target=Sealer(database).run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Sealer(database).run()
    result = found(database)
    assert (result.head.position, result.unsealed, result.broken) == (50, 0, None)


@pytest.mark.parametrize(
    ("statement", "position"),
    [
        ("UPDATE audit_event SET details = '{\"n\": 7}' WHERE position = 3", 3),
        ("UPDATE audit_event SET at = at + interval '1 second' WHERE position = 2", 2),
        ("UPDATE audit_event SET caller_address = '10.0.0.1' WHERE position = 4", 4),
        ("UPDATE audit_event SET job_id = NULL WHERE position = 1", 1),
        ("DELETE FROM audit_event WHERE position = 2", 2),
        (EXCHANGED, 2),
        ("INSERT INTO audit_event (event, details, position, digest) VALUES ('x', '{}', 6, decode('00', 'hex'))", 6),
    ],
)
def test_the_first_broken_link_is_found(database: Database, statement: str, position: int) -> None:
    sealed(database)
    tamper(database, statement)
    broken = found(database).broken
    assert broken is not None
    assert broken.position == position


def test_a_removed_end_shows_against_a_noted_head(database: Database) -> None:
    head = sealed(database)
    tamper(database, "DELETE FROM audit_event WHERE position > 3")
    assert found(database).broken is None
    broken = found(database, head).broken
    assert broken is not None
    assert broken.position == 4


def test_a_chain_written_anew_shows_against_a_noted_head(database: Database) -> None:
    head = sealed(database)
    tamper(database, "UPDATE audit_event SET details = '{}', position = NULL, digest = NULL")
    Sealer(database).run()
    assert found(database).broken is None
    broken = found(database, head).broken
    assert broken is not None
    assert broken.position == 5


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_event SET details = '{}'",
        "DELETE FROM audit_event",
        "UPDATE audit_event SET position = NULL",
        "UPDATE audit_event SET position = 9, event = 'other' WHERE position IS NULL",
    ],
)
def test_the_database_refuses_to_change_events(database: Database, statement: str) -> None:
    sealed(database)
    write(database, 1)
    with pytest.raises(DBAPIError, match="neither changed nor deleted"), database.transaction() as session:
        session.execute(text(statement))


def test_the_command_says_intact_or_names_the_break(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = sealed(database)
    with environment_of(settings, monkeypatch):
        assert audit_command.main(["verify", "--head", str(head)]) == 0
        assert f"head {head}" in capsys.readouterr().out
        tamper(database, "DELETE FROM audit_event WHERE position = 2")
        assert audit_command.main(["verify", "--json"]) == 1
        assert '"position": 2' in capsys.readouterr().out
        with pytest.raises(SystemExit):
            audit_command.main(["verify", "--head", "x"])
