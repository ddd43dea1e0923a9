"""Rotation of the encryption key: content sealed with older keys is sealed anew with the active one."""

from collections import Counter

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shared.crypto import KeyRing, Sealed
from shared.models import ApiKey, Job, Result

BATCH = 100


def reencrypt_prompts(session: Session, keyring: KeyRing) -> int:
    """Seal one portion of the prompts anew; return how many. Can be stopped and begun again at any point.

    Raises:
        DecryptionError: a key that is still needed is not in the ring, or stored content is damaged.
    """
    query = select(Job).where(Job.prompt_ciphertext.is_not(None), Job.prompt_key_id != keyring.active_key_id)
    jobs = session.scalars(query.limit(BATCH).with_for_update(skip_locked=True)).all()
    for job in jobs:
        sealed = _anew(keyring, job.prompt_key_id, job.prompt_ciphertext, f"job:{job.id}:prompt")
        job.prompt_key_id, job.prompt_ciphertext = sealed.key_id, sealed.blob
    return len(jobs)


def reencrypt_outputs(session: Session, keyring: KeyRing) -> int:
    """Do the same for one portion of the outputs.

    Raises:
        DecryptionError: as for prompts.
    """
    query = select(Result).where(Result.output_ciphertext.is_not(None), Result.output_key_id != keyring.active_key_id)
    results = session.scalars(query.limit(BATCH).with_for_update(skip_locked=True)).all()
    for result in results:
        sealed = _anew(keyring, result.output_key_id, result.output_ciphertext, f"job:{result.job_id}:output")
        result.output_key_id, result.output_ciphertext = sealed.key_id, sealed.blob
    return len(results)


def _anew(keyring: KeyRing, key_id: str | None, blob: bytes | None, context: str) -> Sealed:
    return keyring.seal(keyring.open(Sealed(key_id or "", blob or b""), context=context), context=context)


def still_needed(session: Session) -> dict[str, Counter[str]]:
    """Return, by key id, what is still under that key: `prompts`, `outputs` and valid `api_keys`."""
    counts: dict[str, Counter[str]] = {}
    for name, column, where in (
        ("prompts", Job.prompt_key_id, Job.prompt_ciphertext.is_not(None)),
        ("outputs", Result.output_key_id, Result.output_ciphertext.is_not(None)),
        ("api_keys", ApiKey.digest_key_id, ApiKey.revoked_at.is_(None)),
    ):
        for key_id, count in session.execute(select(column, func.count()).where(where).group_by(column)):
            counts.setdefault(str(key_id), Counter())[name] = count
    return counts
