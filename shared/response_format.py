"""What shape an output must have, as OpenAI's `response_format` says it."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

MAX_SCHEMA_BYTES = 65_536
MAX_SCHEMA_DEPTH = 64
SchemaName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class JsonSchemaFormat(BaseModel):
    """A named JSON Schema. It is enforced either way, so `strict` changes nothing; it is OpenAI's field."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    name: SchemaName
    description: str | None = Field(default=None, max_length=1024)
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None

    @field_validator("schema_")
    @classmethod
    def _bounded(cls, value: dict[str, Any]) -> dict[str, Any]:
        # Depth first: `json.dumps` of a document nested deep enough raises RecursionError.
        if any(depth > MAX_SCHEMA_DEPTH for depth in _depths(value)):
            raise ValueError(f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        if len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) > MAX_SCHEMA_BYTES:
            raise ValueError(f"it is longer than {MAX_SCHEMA_BYTES} bytes")
        return value


class ResponseFormat(BaseModel):
    """`text` is free, `json_object` any JSON object, `json_schema` what the schema allows."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = Field(default=None, validate_default=True)

    @field_validator("json_schema")
    @classmethod
    def _with_its_type(cls, value: JsonSchemaFormat | None, info: ValidationInfo) -> JsonSchemaFormat | None:
        if "type" in info.data and (info.data["type"] == "json_schema") != (value is not None):
            raise ValueError("it goes with type json_schema, and only with it")
        return value

    @property
    def constrains(self) -> bool:
        """Whether this is more than free text."""
        return self.type != "text"


def _depths(document: dict[str, Any]) -> Iterator[int]:
    waiting: list[tuple[int, Any]] = [(1, document)]
    while waiting:
        depth, value = waiting.pop()
        yield depth
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(depth + 1, item) for item in items]
