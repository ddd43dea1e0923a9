"""API keys: `tm_<id>_<secret>`, shown once; only a keyed digest of the secret is stored."""

import re
import secrets
from collections.abc import Collection
from datetime import datetime
from typing import Final, NoReturn

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from shared import audit
from shared.crypto import KeyRing, digests_equal
from shared.errors import AuthenticationError, InvalidInputError, NotFoundError
from shared.models import ApiKey
from shared.privacy import DEFAULT, Policy

SCOPES: Final = frozenset({"submit", "read", "admin"})
PURPOSE: Final = "api-key"
ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
MAX_NAME_LENGTH: Final = 128
_KEY = re.compile(r"tm_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


def create(  # noqa: PLR0913  # one keyword per property of a key
    session: Session,
    keyring: KeyRing,
    name: str,
    scopes: Collection[str],
    *,
    expires_at: datetime | None = None,
    policy: Policy | None = None,
    retention_days: int | None = None,
) -> str:
    """Write a new key and return it whole, for the only time.

    Without a `policy` the default one holds; without `retention_days` the setting does.

    Raises:
        InvalidInputError: no or unknown scopes, or a name that is empty, too long or not printable.
    """
    _check(name, scopes)
    key_id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    digest_key_id, digest = keyring.mac(PURPOSE, secret.encode())
    row = ApiKey(
        id=key_id,
        name=name,
        secret_digest=digest,
        digest_key_id=digest_key_id,
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        policy=None if policy is None else policy.model_dump(mode="json"),
        retention_days=retention_days,
    )
    session.add(row)
    audit.record(session, "api_key.created", api_key_id=key_id, details={"scopes": sorted(set(scopes))})
    return f"tm_{key_id}_{secret}"


def _check(name: str, scopes: Collection[str]) -> None:
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInputError(f"name must be 1-{MAX_NAME_LENGTH} printable characters", field="name")
    if not scopes or not set(scopes) <= SCOPES:
        raise InvalidInputError(f"scopes must be some of {', '.join(sorted(SCOPES))}", field="scopes")


def authenticate(session: Session, keyring: KeyRing, presented: str) -> ApiKey:
    """Return the key `presented` stands for; a digest made with an older encryption key is made anew.

    Raises:
        AuthenticationError: it is malformed, unknown, expired or revoked.
    """
    matched = _KEY.fullmatch(presented)
    if matched is None:
        _refuse("the API key is malformed: it reads tm_<id>_<secret>")
    key_id, secret = matched.groups()
    row = session.execute(select(ApiKey, func.now()).where(ApiKey.id == key_id)).one_or_none()
    # An unknown id costs the same digest and comparison as a known one.
    digest_key_id = row[0].digest_key_id if row else None
    _, digest = keyring.mac(PURPOSE, secret.encode(), digest_key_id)
    if not digests_equal(digest, row[0].secret_digest if row else bytes(len(digest))) or row is None:
        _refuse("the API key is not known: check TOKENMILL_API_KEY, or ask an administrator for a key")
    key, now = row
    if key.revoked_at is not None:
        _refuse("the API key was revoked: ask an administrator for a new one")
    if key.expires_at is not None and key.expires_at <= now:
        _refuse("the API key is expired: ask an administrator for a new one")
    if key.digest_key_id != keyring.active_key_id:  # after a rotation: the older encryption key can go one day
        key.digest_key_id, key.secret_digest = keyring.mac(PURPOSE, secret.encode())
    return key


def _refuse(message: str) -> NoReturn:
    raise AuthenticationError(message, field="Authorization")


def policy_of(key: ApiKey) -> Policy:
    """Return the privacy policy of a key."""
    return DEFAULT if key.policy is None else Policy.model_validate(key.policy)


def change_policy(session: Session, key_id: str, policy: Policy) -> Policy:
    """Give a key another policy and return it, one version above the one before if that had the same name.

    Raises:
        NotFoundError: there is no such key, or it is revoked.
    """
    key = session.scalars(
        select(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).with_for_update()
    ).one_or_none()
    if key is None:
        raise NotFoundError("no such active API key: check the id, the part after `tm_`", field="id")
    before = policy_of(key)
    version = before.version + 1 if before.name == policy.name and before != policy else policy.version
    changed = policy.model_copy(update={"version": version})
    key.policy = changed.model_dump(mode="json")
    audit.record(session, "api_key.policy_changed", api_key_id=key_id, details={"policy": changed.label})
    return changed


def revoke(session: Session, key_id: str) -> None:
    """Refuse the key from now on; processes that cache authentications follow within seconds.

    Raises:
        NotFoundError: there is no such key, or it is revoked already.
    """
    statement = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(revoked_at=func.now())
    if session.scalars(statement.returning(ApiKey.id)).one_or_none() is None:
        raise NotFoundError("no such active API key: check the id, the part after `tm_`", field="id")
    audit.record(session, "api_key.revoked", api_key_id=key_id, details={})


def encryption_keys_in_use(session: Session) -> set[str]:
    """Return the ids of the encryption keys under which the valid API keys of this fleet were made."""
    return set(session.scalars(select(ApiKey.digest_key_id).where(ApiKey.revoked_at.is_(None)).distinct()))
