"""Encryption at rest: a ring of AES-256 keys, sealed blobs bound to their row, keyed digests.

The first key of the ring encrypts; every key of it decrypts. A rotated key stays in the setting until no row names it.
"""

import base64
import binascii
import hmac
import re
import secrets
from dataclasses import dataclass
from functools import cache
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shared.errors import ConfigurationError, DecryptionError, EncryptionKeyMissingError

SETTING = "TOKENMILL_ENCRYPTION_KEY"
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Sealed:
    """Ciphertext as stored: `key_id` names the key, `blob` is nonce (12 bytes), ciphertext and tag (16 bytes)."""

    key_id: str
    blob: bytes


def generate_key() -> str:
    """Return a fresh setting `k<random>:<base64 of 32 bytes>`; prepend it to the old value to rotate."""
    key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    return f"k{secrets.token_hex(4)}:{key}"


def digests_equal(left: bytes, right: bytes) -> bool:
    """Compare two digests in time that does not depend on where they differ."""
    return hmac.compare_digest(left, right)


class KeyRing:
    """Keys by id, the active one first. Never shows a key in `repr`, an error or a pickle."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        """Take `{key id: 32 bytes}` in order; the first entry encrypts.

        Raises:
            ConfigurationError: the ring is empty or a key has another length.
        """
        if not keys:
            raise _refused("is not set")
        if any(len(key) != KEY_BYTES for key in keys.values()):
            raise _refused(f"holds a key that is not {KEY_BYTES} bytes long")
        self._keys = dict(keys)
        self.active_key_id = next(iter(keys))
        self._subkey = cache(self._derive)

    @classmethod
    def from_setting(cls, setting: str | None) -> Self:
        """Parse `id1:base64key,id2:base64key`.

        Raises:
            ConfigurationError: missing, malformed or with an id that stands twice; the message never quotes the value.
        """
        keys: dict[str, bytes] = {}
        for entry in filter(None, (part.strip() for part in (setting or "").split(","))):
            key_id, key = _parse_entry(entry)
            if key_id in keys:
                raise _refused("names the same key id twice")
            keys[key_id] = key
        return cls(keys)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Ids of all keys, the active one first."""
        return tuple(self._keys)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    def __reduce__(self) -> str:
        """Refuse to be pickled: a key must not travel in a message or a crash dump."""
        raise TypeError("a KeyRing cannot be pickled")

    def seal(self, plaintext: bytes, *, context: str) -> Sealed:
        """Encrypt `plaintext` with the active key, bound to `context`, for instance `job:<id>:prompt`."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        cipher = AESGCM(self._subkey(self.active_key_id, "seal"))
        blob = nonce + cipher.encrypt(nonce, plaintext, context.encode())
        return Sealed(self.active_key_id, blob)

    def open(self, sealed: Sealed, *, context: str) -> bytes:
        """Decrypt what `seal` returned for the same `context`.

        Raises:
            DecryptionError: unknown key id, damaged blob, or a blob moved here from another row.
        """
        if sealed.key_id not in self._keys:
            raise EncryptionKeyMissingError(
                f"content was encrypted with a key that {SETTING} of this host lacks: use one value on all hosts"
            )
        nonce, ciphertext = sealed.blob[:NONCE_BYTES], sealed.blob[NONCE_BYTES:]
        if len(ciphertext) < TAG_BYTES:
            raise DecryptionError("Stored content is damaged: it is shorter than a sealed blob; restore it from backup")
        try:
            return AESGCM(self._subkey(sealed.key_id, "seal")).decrypt(nonce, ciphertext, context.encode())
        except InvalidTag:
            raise DecryptionError(
                f"Stored content does not decrypt: it is damaged, moved from another row, or {SETTING} holds another "
                "key under the same id"
            ) from None

    def mac(self, purpose: str, data: bytes, key_id: str | None = None) -> tuple[str, bytes]:
        """Return `(key id, HMAC-SHA256 of data)` under a subkey of `purpose`, for instance `api-key`.

        Pass the stored `key_id` to recompute a digest made before a rotation.

        Raises:
            DecryptionError: the ring does not hold `key_id`.
        """
        chosen = key_id or self.active_key_id
        if chosen not in self._keys:
            raise DecryptionError(f"A digest was made with a key that {SETTING} no longer holds; put it back")
        return chosen, hmac.digest(self._subkey(chosen, f"mac:{purpose}"), data, "sha256")

    def _derive(self, key_id: str, purpose: str) -> bytes:
        hkdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=f"tokenmill:{purpose}".encode())
        return hkdf.derive(self._keys[key_id])


def _parse_entry(entry: str) -> tuple[str, bytes]:
    key_id, colon, encoded = entry.partition(":")
    if not colon or not _KEY_ID.fullmatch(key_id):
        raise _refused("has an entry without a key id")
    try:
        return key_id, base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise _refused("holds a key that is not base64") from None


def _refused(problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"{SETTING} {problem}; it reads `id:base64key[,older:base64key]`:"
        " make one with `tokenmill keys new-encryption-key`",
        field=SETTING,
    )
