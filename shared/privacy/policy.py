"""What happens to each type of personal data. A policy has a name and a version, and receipts quote both."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

import re2
from pydantic import BaseModel, ConfigDict, Field, field_validator

from shared.errors import InvalidInputError
from shared.privacy.span import PRIORITY

_MAX_ALLOWED = 1000


class Action(StrEnum):
    """What becomes of a value of some entity, the mildest first."""

    KEEP = "keep"
    """The value stays as it is and is not counted."""
    MASK = "mask"
    """Its last characters stay: `*******5678`."""
    HASH = "hash"
    """A keyed digest takes its place, the same in all jobs of one API key: `<PHONE:0f3a9c41d2b7>`."""
    REPLACE = "replace"
    """A placeholder such as `<PHONE_1>` takes its place; its owner can have it restored."""
    REDACT = "redact"
    """The name of its type takes its place: `<PHONE>`."""
    BLOCK = "block"
    """The job is refused."""

    @property
    def strictness(self) -> int:
        """Grows with how little of a value is left."""
        return list(Action).index(self)


Entity = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{1,39}$")]


class Policy(BaseModel):
    """An action per entity, `default` for those not named.

    `names` looks for names of persons too, at about a hundredth of the speed. What equals one of `allow`, or what one
    of `allow_patterns` (RE2) matches whole, stays as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")] = "custom"
    version: Annotated[int, Field(ge=1)] = 1
    actions: dict[Entity, Action] = Field(default_factory=dict, max_length=_MAX_ALLOWED)
    default: Action = Action.REPLACE
    names: bool = False
    allow: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(default=(), max_length=_MAX_ALLOWED)
    allow_patterns: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = Field(default=(), max_length=100)

    @field_validator("allow_patterns")
    @classmethod
    def _compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for index, pattern in enumerate(patterns):
            try:
                _compiled(pattern)
            except re2.error:
                raise ValueError(f"number {index} is no RE2 pattern: look-around and back-references are not") from None
        return patterns

    @property
    def label(self) -> str:
        """`name@version`, as receipts and audit events carry it."""
        return f"{self.name}@{self.version}"

    def action(self, entity: str) -> Action:
        """Return the action for `entity`."""
        return self.actions.get(entity, self.default)

    def allows(self, value: str) -> bool:
        """Whether a list of this policy lets `value` stay."""
        return value in self._allowed or any(pattern.fullmatch(value) for pattern in self._patterns)

    @cached_property
    def _allowed(self) -> frozenset[str]:
        return frozenset(self.allow)

    @cached_property
    def _patterns(self) -> tuple[Any, ...]:
        return tuple(_compiled(pattern) for pattern in self.allow_patterns)

    def looser_than(self, other: "Policy") -> str | None:
        """Return what this policy hides less of than `other`: an entity, `names` or a list; None where nothing is."""
        entities = sorted({*PRIORITY, *self.actions, *other.actions, "any other entity"})
        for entity in entities:
            if self.action(entity).strictness < other.action(entity).strictness:
                return entity
        if other.names and not self.names:
            return "names"
        allowed = set(self.allow) <= set(other.allow) and set(self.allow_patterns) <= set(other.allow_patterns)
        return None if allowed else "allow"


def _compiled(pattern: str) -> Any:  # noqa: ANN401  # re2 ships no types
    options = re2.Options()
    options.log_errors = False  # RE2 would write the pattern to stderr
    return re2.compile(pattern, options)


DEFAULT = Policy(name="default")
"""Replaces every entity that is found by pattern and checksum, and Chinese postal addresses."""
STRICT = Policy(name="strict", names=True)
"""Names of persons too."""
BUILT_IN_POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (DEFAULT, STRICT)}


def policy_named(name: str) -> Policy:
    """Return a built-in policy.

    Raises:
        InvalidInputError: there is none of that name; lists those there are.
    """
    if name in BUILT_IN_POLICIES:
        return BUILT_IN_POLICIES[name]
    known = ", ".join(BUILT_IN_POLICIES)
    raise InvalidInputError(f"no such policy; built in are {known}: name one, or send an object", field="policy")
