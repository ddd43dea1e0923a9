"""Who calls: API keys, with a short memory of those that were right."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from shared import api_keys
from shared.crypto import KeyRing
from shared.database import Database
from shared.errors import AuthenticationError, PermissionDeniedError
from shared.privacy import DEFAULT, Policy

REMEMBER_SECONDS = 2.0
REMEMBERED_KEYS = 1024
BEARER = HTTPBearer(auto_error=False, scheme_name="ApiKey", bearerFormat="tm_<id>_<secret>", description="An API key")


@dataclass(frozen=True, slots=True)
class Identity:
    """The API key behind a request, what it may do and its privacy policy."""

    api_key_id: str
    scopes: frozenset[str]
    policy: Policy = DEFAULT

    def may(self, scope: str) -> bool:
        """Whether the key holds `scope`; admin keys hold all."""
        return scope in self.scopes or "admin" in self.scopes


class Authenticator:
    """Checks presented keys against the database. A right key is remembered for two seconds; a wrong one never."""

    def __init__(self, database: Database, keyring: KeyRing) -> None:
        """Remember nothing yet."""
        self._database = database
        self._keyring = keyring
        self._pepper = secrets.token_bytes(32)
        self._remembered: dict[bytes, tuple[float, Identity]] = {}
        self._lock = threading.Lock()

    def authenticate(self, presented: str) -> Identity:
        """Return who presents the key.

        Raises:
            AuthenticationError: it is malformed, unknown, expired or revoked.
        """
        digest = blake2b(presented.encode("utf-8", "replace"), key=self._pepper).digest()
        until, identity = self._remembered.get(digest, (0.0, None))
        if identity is not None and time.monotonic() < until:
            return identity
        with self._database.transaction() as session:
            key = api_keys.authenticate(session, self._keyring, presented)
            identity = Identity(key.id, frozenset(key.scopes), api_keys.policy_of(key))
        self._remember(digest, identity)
        return identity

    def _remember(self, digest: bytes, identity: Identity) -> None:
        with self._lock:
            if len(self._remembered) >= REMEMBERED_KEYS:
                self._remembered.clear()
            self._remembered[digest] = (time.monotonic() + REMEMBER_SECONDS, identity)


def require(*scopes: str) -> Callable[..., Identity]:
    """Return a dependency that gives the caller's identity.

    It raises AuthenticationError without a valid key, and PermissionDeniedError when one of `scopes` is missing.
    """

    def identify(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
    ) -> Identity:
        if credentials is None:
            raise AuthenticationError("send the API key as Authorization: Bearer tm_...", field="Authorization")
        authenticator: Authenticator = request.app.state.services.authenticator
        identity = authenticator.authenticate(credentials.credentials)
        request.state.api_key_id = identity.api_key_id
        missing = [scope for scope in scopes if not identity.may(scope)]
        if missing:
            raise PermissionDeniedError(f"this API key lacks the scope {missing[0]}: use a key that has it")
        return identity

    return identify
