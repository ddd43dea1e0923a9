"""Retention: content of jobs that ended long enough ago is erased, their figures and audit events stay."""

from sqlalchemy import Integer, and_, cast, func, or_, select, update
from sqlalchemy.orm import Session

from shared import audit
from shared.models import ApiKey, Job, Result

BATCH = 200


def erase_old_content(session: Session, default_days: int | None) -> int:
    """Erase prompt and output of one portion of the jobs past their key's retention; return how many.

    A key without `retention_days` keeps to `default_days`; None keeps content until its owner erases it.
    """
    days = func.coalesce(ApiKey.retention_days, default_days)
    old = and_(days.is_not(None), Job.finished_at < func.now() - func.make_interval(0, 0, 0, cast(days, Integer)))
    holds_content = or_(Job.prompt_ciphertext.is_not(None), Result.output_ciphertext.is_not(None))
    query = (
        select(Job.id, Job.api_key_id)
        .join(ApiKey, ApiKey.id == Job.api_key_id)
        .join(Result, Result.job_id == Job.id, isouter=True)
        .where(old, holds_content)
        .limit(BATCH)
        .with_for_update(of=Job, skip_locked=True)
    )
    found = session.execute(query).all()
    ids = [job_id for job_id, _ in found]
    session.execute(update(Job).where(Job.id.in_(ids)).values(prompt_ciphertext=None, prompt_key_id=None))
    session.execute(update(Result).where(Result.job_id.in_(ids)).values(output_ciphertext=None, output_key_id=None))
    for job_id, api_key_id in found:
        audit.record(session, "job.content_erased", job_id=job_id, api_key_id=api_key_id, details={})
    return len(found)
