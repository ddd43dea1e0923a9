"""What the supervisor needs to know of a process: roles are data."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProcessSpec:
    """One child. `number` tells several of a role apart; `environment` is complete, secrets included."""

    role: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    number: int | None = None
    cores: tuple[int, ...] | None = None
    stop_seconds: float = 10.0

    @property
    def name(self) -> str:
        """Name of its log: `worker-0`, `api`."""
        return self.role if self.number is None else f"{self.role}-{self.number}"
