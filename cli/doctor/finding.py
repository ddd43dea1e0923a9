"""One line of the doctor's report."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`fail` means that a fleet cannot run like this."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and how good that is."""

    name: str
    detail: str
    verdict: Verdict = Verdict.OK

    def public(self) -> dict[str, str]:
        """Fields for scripts."""
        return {name: str(value) for name, value in asdict(self).items()}
