"""What clients send: a job."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from shared.errors import InvalidInputError
from shared.privacy import Policy
from shared.privacy.policy import policy_named
from shared.response_format import ResponseFormat
from shared.sampling import SamplingParams
from shared.states import Priority

MAX_METADATA_PAIRS = 16
_RFC3339 = "an RFC 3339 time with its offset, such as 2030-01-31T12:00:00Z, or Unix seconds"


def _instant(value: object) -> datetime:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str) and (parsed := datetime.fromisoformat(value)).tzinfo is not None:
            return parsed.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"it must be {_RFC3339}")


Deadline = Annotated[
    datetime,
    BeforeValidator(_instant),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}], "description": _RFC3339}),
]
MetadataKey = Annotated[str, Field(min_length=1, max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class ChatMessage(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant", "tool"]
    content: str = Field(min_length=1)


class PrivacyPolicyRequest(BaseModel):
    """What shall happen to personal data: at least what the API key's policy asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Literal["default", "strict"] | Policy | None = Field(
        default=None, description="A built-in policy or one of your own; the API key's when absent"
    )

    def effective(self, of_key: Policy) -> Policy:
        """Return the policy of the job.

        Raises:
            InvalidInputError: it hides less than the key's; names what.
        """
        if self.policy is None:
            return of_key
        wanted = policy_named(self.policy) if isinstance(self.policy, str) else self.policy
        looser = wanted.looser_than(of_key)
        if looser is not None:
            raise InvalidInputError(
                f"the policy of this API key ({of_key.label}) hides more than privacy.policy ({looser}): ask for a"
                " stricter one, or leave it out",
                field="privacy.policy",
            )
        return wanted


class PrivacyRequest(PrivacyPolicyRequest):
    """What shall happen to personal data in a job."""

    restore: bool = Field(default=False, description="Put the original values back into the output")


class JobRequest(BaseModel):
    """A job as it is submitted: exactly one of `prompt` and `messages`, the rest optional."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {"prompt": "Summarise in one sentence: ...", "sampling": {"max_tokens": 64}, "priority": "low"},
                {
                    "messages": [
                        {"role": "system", "content": "Answer with a single word."},
                        {"role": "user", "content": "Which city is the capital of France?"},
                    ],
                    "metadata": {"document": "42"},
                },
            ]
        },
    )

    model: str | None = Field(default=None, description="An installed model; the default one when absent")
    prompt: str | None = Field(default=None, min_length=1, description="One user message")
    messages: tuple[ChatMessage, ...] | None = Field(default=None, min_length=1)
    sampling: SamplingParams = Field(default_factory=SamplingParams)
    response_format: ResponseFormat | None = Field(default=None, description="The same as in sampling")
    priority: Priority = Priority.NORMAL
    deadline: Deadline | None = Field(default=None, description="The job expires if it has not finished by then")
    privacy: PrivacyRequest = Field(default_factory=PrivacyRequest, description="Stricter than the API key's policy")
    metadata: dict[MetadataKey, MetadataValue] = Field(
        default_factory=dict, max_length=MAX_METADATA_PAIRS, description="Your labels: kept in clear, echoed back"
    )

    @field_validator("response_format")
    @classmethod
    def _once(cls, value: ResponseFormat | None, info: ValidationInfo) -> ResponseFormat | None:
        sampling = info.data.get("sampling")
        if value is not None and isinstance(sampling, SamplingParams):
            if sampling.response_format is not None:
                raise ValueError("it stands in sampling as well: send it once")
            try:
                _with_format(sampling, value)
            except ValidationError as error:
                reason = error.errors(include_input=False, include_url=False)[0]["msg"]
                raise ValueError(reason.removeprefix("Value error, ")) from None
        return value

    def sampling_params(self) -> SamplingParams:
        """Return the sampling parameters, with the `response_format` wherever it was sent."""
        return self.sampling if self.response_format is None else _with_format(self.sampling, self.response_format)

    def conversation(self) -> list[dict[str, str]]:
        """Return the messages; a bare prompt is one of the user.

        Raises:
            InvalidInputError: both or neither of `prompt` and `messages` were sent.
        """
        if self.prompt is not None and self.messages is not None:
            raise InvalidInputError("prompt and messages exclude each other: send one of them", field="messages")
        if self.prompt is not None:
            return [{"role": "user", "content": self.prompt}]
        if self.messages is not None:
            return [message.model_dump() for message in self.messages]
        raise InvalidInputError("prompt is required: send prompt or messages", field="prompt")

    def canonical(self) -> bytes:
        """Return bytes that are equal for equal jobs, whatever the order of names or which defaults were spelt out."""
        sent: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(sent, sort_keys=True).encode()


def _with_format(sampling: SamplingParams, wanted: ResponseFormat) -> SamplingParams:
    # What was not sent stays unset: the default of `max_tokens` shrinks to fit, a sent one does not.
    return SamplingParams.model_validate({**sampling.model_dump(exclude_unset=True), "response_format": wanted})
