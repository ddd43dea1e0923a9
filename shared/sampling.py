"""Sampling parameters of one generation: the one definition the API, the database and the engine share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256

LOWEST_TEMPERATURE = 0.001  # below it logits overflow float32; 0 is greedy
StopTokenId = Annotated[int, Field(ge=0, lt=2**31)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]


class SamplingParams(BaseModel):
    """How the next token is chosen. `temperature` 0 is greedy; `max_tokens` counts generated tokens only.

    The penalties follow vLLM: `repetition_penalty` looks at prompt and output, `presence_penalty` and
    `frequency_penalty` at output only. `seed` makes a sampled output repeatable whatever shares its step batch.
    """

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
    stop_token_ids: tuple[StopTokenId, ...] = Field(default=(), max_length=MAX_STOP_STRINGS)
    ignore_eos: bool = False

    @field_validator("stop", mode="before")
    @classmethod
    def _single_stop_string(cls, value: object) -> object:
        # A list becomes a tuple here: strict validation, which the API uses, takes no list for one.
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value

    @field_validator("temperature")
    @classmethod
    def _greedy_or_representable(cls, value: float) -> float:
        if 0 < value < LOWEST_TEMPERATURE:
            raise ValueError(f"use 0 for greedy output, or at least {LOWEST_TEMPERATURE}")
        return value

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0
