"""What happens to each type of personal data. A policy has a name and a version, and receipts quote both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Action(StrEnum):
    """What becomes of a value of some entity."""

    REPLACE = "replace"
    """A placeholder such as `<PHONE_1>` takes its place; the mapping can restore it."""
    KEEP = "keep"
    """The value stays as it is and is not counted."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An action per entity, `default` for those not named."""

    name: str
    version: int
    actions: Mapping[str, Action] = field(default_factory=lambda: MappingProxyType({}))
    default: Action = Action.REPLACE

    @property
    def label(self) -> str:
        """`name@version`, as receipts and audit events carry it."""
        return f"{self.name}@{self.version}"

    def action(self, entity: str) -> Action:
        """Return the action for `entity`."""
        return self.actions.get(entity, self.default)


DEFAULT = Policy("default", 1)
"""Replaces every entity."""
