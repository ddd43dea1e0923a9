"""`python -m api.keys create --name NAME --scopes submit,read`: make a key, shown once; `revoke ID` refuses it."""

import argparse
import sys
from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from shared import api_keys, reencryption
from shared.crypto import KeyRing
from shared.database import Database
from shared.errors import ConfigurationError, TokenmillError
from shared.privacy.policy_file import load_policy
from shared.settings import Settings, get_settings

MAX_RETENTION_DAYS = 36_500


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m api.keys", description="Manage API keys")
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="make a key and write it to standard output, for the only time")
    create.add_argument("--name", required=True, help="what the key is for")
    create.add_argument("--scopes", default="submit,read", help="comma-separated: submit, read, admin")
    create.add_argument("--policy", default=None, help="privacy policy: default, strict or a JSON file")
    create.add_argument("--retention-days", type=_days, default=None, help="erase content that many days after the end")
    policy = commands.add_parser("policy", help="give a key another privacy policy")
    policy.add_argument("id", help="the part after tm_")
    policy.add_argument("policy", help="default, strict or a JSON file")
    commands.add_parser("rotate-encryption", help="seal all content anew with the first encryption key")
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
                return _create(session, keyring, arguments)
            if arguments.command == "rotate-encryption":
                return _rotate(database, keyring)
            if arguments.command == "policy":
                changed = api_keys.change_policy(session, arguments.id, load_policy(arguments.policy))
                return f"{arguments.id} has policy {changed.label}"
            api_keys.revoke(session, arguments.id)
            return f"revoked {arguments.id}"
    finally:
        database.close()


def _create(session: Session, keyring: KeyRing, arguments: argparse.Namespace) -> str:
    return api_keys.create(
        session,
        keyring,
        arguments.name,
        arguments.scopes.split(","),
        policy=load_policy(arguments.policy) if arguments.policy else None,
        retention_days=arguments.retention_days,
    )


def _rotate(database: Database, keyring: KeyRing) -> str:
    """Seal everything anew, a portion at a time, and say which older keys can go."""
    sealed = 0
    for portion in (reencryption.reencrypt_prompts, reencryption.reencrypt_outputs):
        while count := _in_transaction(database, keyring, portion):
            sealed += count
    with database.transaction() as session:
        needed = reencryption.still_needed(session)
    lines = [f"{sealed} sealed anew with {keyring.active_key_id}"]
    for key_id in sorted({*keyring.key_ids, *needed} - {keyring.active_key_id}):
        kept = ", ".join(f"{count} {name}" for name, count in needed.get(key_id, {}).items())
        lines.append(f"{key_id}: still needed for {kept}" if kept else f"{key_id}: no longer needed, remove it")
    return "\n".join(lines)


def _in_transaction(database: Database, keyring: KeyRing, portion: Callable[[Session, KeyRing], int]) -> int:
    with database.transaction() as session:
        return portion(session, keyring)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_RETENTION_DAYS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MAX_RETENTION_DAYS}")
    return int(text)


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
