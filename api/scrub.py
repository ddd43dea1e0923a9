"""`/v1/scrub`: what scrubbing makes of a text. Nothing is stored, logged or sent on."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Identity
from api.dependencies import Provided, Submitter
from api.json_body import json_bytes, parse
from api.openapi import body_of, errors
from api.schemas import ChatMessage, PrivacyPolicyRequest
from shared.errors import InvalidInputError
from shared.privacy import Policy
from shared.privacy.replacement import digest_for

router = APIRouter(prefix="/v1", tags=["privacy"])


class ScrubRequest(BaseModel):
    """A text or a conversation: exactly one of `text` and `messages`."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"text": "Call +86 138 1234 5678.", "privacy": {"policy": "strict"}}]},
    )

    text: str | None = Field(default=None, min_length=1)
    messages: tuple[ChatMessage, ...] | None = Field(default=None, min_length=1)
    privacy: PrivacyPolicyRequest = Field(default_factory=PrivacyPolicyRequest)


class FoundEntity(BaseModel):
    """Where a value stands in the text that was sent: code points, `end` exclusive."""

    type: str
    start: int
    end: int


class ScrubView(BaseModel):
    """The scrubbed text or conversation, where values stood (in a text), and the receipt."""

    object: Literal["scrub"] = "scrub"
    text: str | None
    messages: list[ChatMessage] | None
    entities: list[FoundEntity] | None
    privacy: dict[str, Any]


def _request(raw: Annotated[bytes, Depends(json_bytes)]) -> ScrubRequest:
    return parse(ScrubRequest, raw)


@router.post("/scrub", openapi_extra=body_of(ScrubRequest), responses=errors(400, 413, 415, 422))
def scrub(identity: Submitter, body: Annotated[ScrubRequest, Depends(_request)], services: Provided) -> ScrubView:
    """Scrub as a job of this API key would be, and return the result; nothing is kept."""
    if (body.text is None) == (body.messages is None):
        raise InvalidInputError("send text or messages: one of the two", field="text")
    policy = body.privacy.effective(identity.policy)
    return (
        _of_text(services, identity, body.text, policy) if body.text else _of_messages(services, identity, body, policy)
    )


def _of_text(services: Provided, identity: Identity, text: str, policy: Policy) -> ScrubView:
    digest = digest_for(services.keyring, identity.api_key_id)
    result = services.scrubber.scrub(text, policy=policy, digest=digest)
    found = [FoundEntity(type=span.entity, start=span.start, end=span.end) for span in result.spans]
    return ScrubView(text=result.text, messages=None, entities=found, privacy=result.receipt)


def _of_messages(services: Provided, identity: Identity, body: ScrubRequest, policy: Policy) -> ScrubView:
    messages = [message.model_dump() for message in body.messages or ()]
    digest = digest_for(services.keyring, identity.api_key_id)
    scrubbed, result = services.scrubber.scrub_messages(messages, policy=policy, digest=digest)
    return ScrubView(
        text=None,
        messages=[ChatMessage.model_validate(message) for message in scrubbed],
        entities=None,
        privacy=result.receipt,
    )
