"""Sampling parameters of one generation: the one definition the API, the database and the engine share."""

from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from shared.errors import InvalidInputError
from shared.response_format import ResponseFormat

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256
MAX_TOP_LOGPROBS = 20
MAX_LOGIT_BIASES = 300
MAX_REGEX_LENGTH = 4096
MAX_CHOICES = 512
MAX_CHOICE_LENGTH = 1024
MAX_SEQUENCES = 16

LOWEST_TEMPERATURE = 0.001  # below it logits overflow float32; 0 is greedy
# Content of a user, or what spells it: sealed with the prompt, never stored in clear.
SEALED_FIELDS = frozenset({"stop", "stop_token_ids", "logit_bias", "response_format", "regex", "choice"})
CONSTRAINTS = ("response_format", "regex", "choice")
# Beam search compares whole outputs; what shapes single draws has no meaning there.
WITHOUT_BEAMS = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logprobs": False,
    "logit_bias": {},
}
# Each of these could end an output before it is what the constraint asks for.
WITHOUT_CONSTRAINT = {"min_tokens": 0, "stop": (), "stop_token_ids": (), "ignore_eos": False}

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Choice = Annotated[str, Field(min_length=1, max_length=MAX_CHOICE_LENGTH)]
Bias = Annotated[float, Field(ge=-100.0, le=100.0)]
AdapterName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Constraint = TypeVar("Constraint", ResponseFormat | None, str | None, tuple[str, ...] | None)


class SamplingParams(BaseModel):
    """How the next token is chosen. `temperature` 0 is greedy; `max_tokens` counts generated tokens only.

    The penalties follow vLLM: `repetition_penalty` looks at prompt and output, `presence_penalty` and
    `frequency_penalty` at output only. `seed` makes a sampled output repeatable whatever shares its step batch.
    At most one of `response_format`, `regex` and `choice` constrains the output.
    """

    # The order matters: a validator sees the fields above its own, so rules about pairs stand at the later one.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_tokens: int = Field(default=256, ge=1, le=1_000_000)
    min_tokens: int = Field(default=0, ge=0)
    temperature: float = Field(default=0.0, ge=0.0, le=10.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0, description="0 keeps every token")
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=10.0)
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: tuple[StopString, ...] = Field(default=(), max_length=MAX_STOP_STRINGS)
    stop_token_ids: tuple[TokenId, ...] = Field(default=(), max_length=MAX_STOP_STRINGS)
    ignore_eos: bool = False
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MAX_TOP_LOGPROBS, description="needs logprobs")
    logit_bias: dict[TokenId, Bias] = Field(
        default_factory=dict, max_length=MAX_LOGIT_BIASES, description="added to the logits of these token ids"
    )
    response_format: ResponseFormat | None = None
    regex: str | None = Field(default=None, min_length=1, max_length=MAX_REGEX_LENGTH)
    choice: tuple[Choice, ...] | None = Field(default=None, min_length=1, max_length=MAX_CHOICES)
    num_beams: int = Field(default=1, ge=1, le=MAX_SEQUENCES, description="above 1: beam search")
    length_penalty: float = Field(default=1.0, ge=-10.0, le=10.0, description="of beam search")
    n: int = Field(default=1, ge=1, le=MAX_SEQUENCES, description="outputs per job")
    adapter: AdapterName | None = Field(default=None, description="a LoRA adapter of the model")

    @field_validator("stop", "choice", mode="before")
    @classmethod
    def _sequence_as_tuple(cls, value: object, info: ValidationInfo) -> object:
        # A list becomes a tuple here: strict validation, which the API uses, takes no list for one.
        alone = isinstance(value, str) and info.field_name == "stop"
        return (value,) if alone else tuple(value) if isinstance(value, list) else value

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _numbered_keys(cls, value: object) -> object:
        # JSON has string keys only; `isdecimal` takes digits of every script, hence both tests.
        if not isinstance(value, dict):
            return value
        return {int(k) if isinstance(k, str) and k.isascii() and k.isdecimal() else k: v for k, v in value.items()}

    @field_validator("temperature")
    @classmethod
    def _greedy_or_representable(cls, value: float) -> float:
        if 0 < value < LOWEST_TEMPERATURE:
            raise ValueError(f"use 0 for greedy output, or at least {LOWEST_TEMPERATURE}")
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _with_logprobs(cls, value: int, info: ValidationInfo) -> int:
        if value and info.data.get("logprobs") is False:
            raise ValueError("it needs logprobs: true")
        return value

    @field_validator(*CONSTRAINTS)
    @classmethod
    def _only_constraint(cls, value: Constraint, info: ValidationInfo) -> Constraint:
        if not _constrains(value):
            return value
        others = [name for name in CONSTRAINTS if _constrains(info.data.get(name))]
        others += [name for name, unset in WITHOUT_CONSTRAINT.items() if info.data.get(name, unset) != unset]
        if others:
            raise ValueError(f"it excludes {others[0]}: keep one of them")
        return value

    @field_validator("num_beams")
    @classmethod
    def _beams_alone(cls, value: int, info: ValidationInfo) -> int:
        if value == 1:
            return value
        if info.data.get("temperature"):
            raise ValueError("beam search needs temperature 0")
        others = [name for name in CONSTRAINTS if _constrains(info.data.get(name))]
        others += [name for name, unset in WITHOUT_BEAMS.items() if info.data.get(name, unset) != unset]
        if others:
            raise ValueError(f"beam search excludes {others[0]}: drop one of them")
        return value

    @field_validator("length_penalty")
    @classmethod
    def _of_beams(cls, value: float, info: ValidationInfo) -> float:
        if value != 1 and info.data.get("num_beams") == 1:
            raise ValueError("it needs num_beams above 1")
        return value

    @field_validator("n")
    @classmethod
    def _within_beams(cls, value: int, info: ValidationInfo) -> int:
        if 1 < info.data.get("num_beams", 1) < value:
            raise ValueError("it exceeds num_beams")
        return value

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def constrained(self) -> bool:
        """Whether `response_format`, `regex` or `choice` limits the output."""
        return any(_constrains(getattr(self, name)) for name in CONSTRAINTS)

    def of_choice(self, index: int) -> Self:
        """Return the parameters of output `index` of `n`: alone, and with a seed of its own."""
        seed = None if self.seed is None else (self.seed + index) % 2**63
        return self.model_copy(update={"n": 1, "seed": seed})


def check_token_ids(params: SamplingParams, vocab_size: int) -> None:
    """Refuse token ids the model does not have.

    Raises:
        InvalidInputError: one in `logit_bias` or `stop_token_ids` is not below `vocab_size`; names the field.
    """
    for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        if any(token_id >= vocab_size for token_id in ids):
            raise InvalidInputError(
                f"sampling.{name} has a token id beyond {vocab_size - 1}, the last one of the model: correct it",
                field=f"sampling.{name}",
            )


def _constrains(value: object) -> bool:
    return value.constrains if isinstance(value, ResponseFormat) else value is not None
