"""Secrets of the state directory: encryption key, the first API key, Flower's login. One line each, 0600."""

import secrets
from collections.abc import Callable
from pathlib import Path

from cli.embedded.files import write_private
from cli.supervisor.fleet_file import key_file
from shared import api_keys
from shared.crypto import KeyRing, generate_key
from shared.database import Database
from shared.errors import AuthenticationError
from shared.settings import Settings

FLOWER_USER = "tokenmill"
ALL_SCOPES = ("submit", "read", "admin")


def encryption_key(settings: Settings) -> str:
    """Return the configured key, or the one in `<state_dir>/encryption.key`, made on the first call."""
    if settings.encryption_key is not None:
        return settings.encryption_key.get_secret_value()
    return _kept(settings.state_dir / "encryption.key", generate_key)


def flower_login(state_dir: Path) -> str:
    """Return `user:password` from `<state_dir>/flower.auth`, made on the first call."""
    return _kept(state_dir / "flower.auth", lambda: f"{FLOWER_USER}:{secrets.token_urlsafe(24)}")


def ensure_api_key(database_url: str, encryption_key: str, state_dir: Path) -> str | None:
    """Make an API key unless the one in `<state_dir>/api.key` is good; return a new one, for showing it once."""
    keyring, path = KeyRing.from_setting(encryption_key), key_file(state_dir)
    database = Database(database_url, application_name="tokenmill-supervisor")
    try:
        if path.exists() and _accepted(database, keyring, path.read_text(encoding="utf-8").strip()):
            return None
        with database.transaction() as session:
            key = api_keys.create(session, keyring, "default", ALL_SCOPES)
    finally:
        database.close()
    write_private(path, key + "\n")
    return key


def _accepted(database: Database, keyring: KeyRing, key: str) -> bool:
    try:
        with database.transaction() as session:
            api_keys.authenticate(session, keyring, key)
    except AuthenticationError:
        return False
    return True


def _kept(path: Path, make: Callable[[], str]) -> str:
    if not path.exists():
        write_private(path, make() + "\n")
    return path.read_text(encoding="utf-8").strip()
