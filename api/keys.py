"""`python -m api.keys create --name NAME --scopes submit,read`: make a key, shown once; `revoke ID` refuses it."""

import argparse
import sys
from collections.abc import Sequence

from shared import api_keys
from shared.crypto import KeyRing
from shared.database import Database
from shared.errors import ConfigurationError, TokenmillError
from shared.settings import Settings, get_settings


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m api.keys", description="Manage API keys")
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="make a key and write it to standard output, for the only time")
    create.add_argument("--name", required=True, help="what the key is for")
    create.add_argument("--scopes", default="submit,read", help="comma-separated: submit, read, admin")
    revoke = commands.add_parser("revoke", help="refuse a key from now on")
    revoke.add_argument("id", help="the part after tm_")
    return parser.parse_args(argv)


def _open(settings: Settings) -> tuple[Database, KeyRing]:
    if settings.database_url is None:
        raise ConfigurationError("set TOKENMILL_DATABASE_URL: `tokenmill status --json` shows it", field="database_url")
    key = settings.encryption_key.get_secret_value() if settings.encryption_key else None
    return Database(settings.database_url.get_secret_value(), pool_size=1), KeyRing.from_setting(key)


def _run(arguments: argparse.Namespace) -> str:
    database, keyring = _open(get_settings())
    try:
        with database.transaction() as session:
            if arguments.command == "create":
                return api_keys.create(session, keyring, arguments.name, arguments.scopes.split(","))
            api_keys.revoke(session, arguments.id)
            return f"revoked {arguments.id}"
    finally:
        database.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    try:
        sys.stdout.write(_run(_arguments(argv)) + "\n")
    except TokenmillError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
