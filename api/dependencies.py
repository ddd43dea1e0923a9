"""What the endpoints need: the process's services, who calls, and checked parameters."""

import re
from dataclasses import dataclass
from typing import Annotated, cast

from celery import Celery
from fastapi import Depends, Header, Path, Request
from redis import Redis

from api.auth import Authenticator, Identity, require
from api.completion_waiter import CompletionWaiter
from api.health import Readiness
from api.json_body import json_bytes, parse
from api.publisher import Publisher
from api.schemas import JobRequest
from api.submission import Caller, Submissions
from shared.crypto import KeyRing
from shared.database import Database
from shared.errors import InvalidInputError, NotFoundError
from shared.privacy import Scrubber
from shared.settings import Settings

_JOB_ID = re.compile(r"job_[0-9a-f]{32}")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True)
class Services:
    """What one API process holds open."""

    settings: Settings
    database: Database
    keyring: KeyRing
    broker: Redis
    celery: Celery
    authenticator: Authenticator
    publisher: Publisher
    submissions: Submissions
    waiter: CompletionWaiter
    readiness: Readiness
    scrubber: Scrubber

    def close(self) -> None:
        """Stop publishing and close every connection."""
        self.publisher.stop()
        self.broker.close()
        self.celery.close()
        self.database.close()


def services_of(request: Request) -> Services:
    """Return the services of the application behind `request`."""
    return cast("Services", request.app.state.services)


def checked_job_id(job_id: Annotated[str, Path(description="Id of a job of this API key")]) -> str:
    """Return the id from the path.

    Raises:
        NotFoundError: no job can have it.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise NotFoundError("no such job for this API key: check the id", field="id")
    return job_id


def idempotency_key(
    value: Annotated[
        str | None,
        Header(alias="Idempotency-Key", description="1-255 visible ASCII characters; a repeat gives the first job"),
    ] = None,
) -> str | None:
    """Return the key of a submission that may be repeated.

    Raises:
        InvalidInputError: it is empty, too long or not visible ASCII.
    """
    if value is not None and not _IDEMPOTENCY_KEY.fullmatch(value):
        raise InvalidInputError("Idempotency-Key must be 1-255 visible ASCII characters", field="Idempotency-Key")
    return value


def job_request(raw: Annotated[bytes, Depends(json_bytes)]) -> JobRequest:
    """Return the job in the body; raises InvalidInputError naming the field that is wrong."""
    return parse(JobRequest, raw)


Reader = Annotated[Identity, Depends(require("read"))]
Submitter = Annotated[Identity, Depends(require("submit"))]
SubmittingReader = Annotated[Identity, Depends(require("submit", "read"))]
IdempotencyKey = Annotated[str | None, Depends(idempotency_key)]
JobId = Annotated[str, Depends(checked_job_id)]
JobBody = Annotated[JobRequest, Depends(job_request)]
Provided = Annotated[Services, Depends(services_of)]


def caller_of(request: Request, identity: Identity, key: str | None = None) -> Caller:
    """Return who submits or acts, for the record."""
    address = request.client.host if request.client else None
    return Caller(identity.api_key_id, request.state.request_id, address, key, identity.policy)
