"""`python -m api.audit verify`: walk the audit chain and name the first broken link."""

import argparse
import json
import sys
from collections.abc import Sequence

from shared.audit_chain import Head, Verification, verify
from shared.database import Database
from shared.errors import ConfigurationError, TokenmillError
from shared.settings import get_settings

_DIGEST_BYTES = 32


def _head(noted: str) -> Head:
    position, _, digest = noted.partition(":")
    try:
        head = Head(int(position), bytes.fromhex(digest))
    except ValueError:
        head = Head()
    if head.position < 1 or len(head.digest) != _DIGEST_BYTES:
        raise argparse.ArgumentTypeError("must read POSITION:DIGEST, as `verify` and the log print it")
    return head


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tokenmill audit", description="The audit trail")
    commands = parser.add_subparsers(dest="command", required=True)
    verifying = commands.add_parser("verify", help="find the first broken link of the chain")
    verifying.add_argument("--head", type=_head, help="a head noted earlier, POSITION:DIGEST")
    verifying.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def _verified(noted: Head | None) -> Verification:
    url = get_settings().database_url
    if url is None:
        raise ConfigurationError("set TOKENMILL_DATABASE_URL: `tokenmill status --json` shows it", field="database_url")
    database = Database(url.get_secret_value(), pool_size=1)
    try:
        with database.transaction() as session:
            return verify(session, noted)
    finally:
        database.close()


def _as_json(found: Verification) -> str:
    broken = found.broken and {"position": found.broken.position, "problem": found.broken.problem}
    return json.dumps({"ok": broken is None, "head": str(found.head), "unsealed": found.unsealed, "broken": broken})


def _as_text(found: Verification) -> str:
    if found.broken is not None:
        return f"BROKEN at position {found.broken.position}: {found.broken.problem}"
    return f"intact: {found.head.position} events, {found.unsealed} not sealed yet\nhead {found.head}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code: 1 where the chain is broken."""
    arguments = _arguments(argv)
    try:
        found = _verified(arguments.head)
    except TokenmillError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    sys.stdout.write((_as_json(found) if arguments.json else _as_text(found)) + "\n")
    return 0 if found.broken is None else 1


if __name__ == "__main__":
    sys.exit(main())
