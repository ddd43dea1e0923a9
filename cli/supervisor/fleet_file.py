"""`<state_dir>/fleet.json`: what runs, for commands that must work while the servers are down."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cli.embedded.files import write_private
from cli.embedded.process import ProcessIdentity

SERVER_ROLES = frozenset({"redis", "postgres"})
SUPERVISOR_ROLE = "supervisor"


@dataclass(frozen=True)
class FleetProcess:
    """One running process."""

    role: str
    pid: int
    birth: str
    cores: tuple[int, ...] | None = None
    number: int | None = None

    @property
    def identity(self) -> ProcessIdentity:
        """The process it means, for good."""
        return ProcessIdentity(self.pid, self.birth)

    def public(self) -> dict[str, Any]:
        """Fields for people and scripts; `cores` only where there are any."""
        shown = {"role": self.role, "pid": self.pid, "cores": self.cores, "number": self.number}
        return {name: value for name, value in shown.items() if value is not None}


@dataclass(frozen=True)
class Fleet:
    """Addresses (complete, passwords included: the file is 0600) and processes of one state directory.

    `restarts` counts crashes by name of process since the supervisor started.
    """

    state_dir: str
    api_url: str
    flower_url: str
    key_file: str
    model: str
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    processes: tuple[FleetProcess, ...] = ()
    restarts: dict[str, int] = field(default_factory=dict)

    def alive(self) -> tuple[FleetProcess, ...]:
        """Processes that run now."""
        return tuple(process for process in self.processes if process.identity.alive)

    @property
    def supervisor(self) -> FleetProcess | None:
        """The supervisor, while it runs."""
        return next((process for process in self.alive() if process.role == SUPERVISOR_ROLE), None)

    def status(self) -> dict[str, Any]:
        """What `tokenmill status --json` prints."""
        values = {name: value for name, value in asdict(self).items() if name != "processes"}
        return values | {
            "running": self.supervisor is not None,
            "processes": [process.public() for process in self.alive()],
        }


def path_in(state_dir: Path) -> Path:
    """Return where the file of `state_dir` is."""
    return state_dir / "fleet.json"


def key_file(state_dir: Path) -> Path:
    """Return where the API key of this machine's operator stands."""
    return state_dir / "api.key"


def write(fleet: Fleet) -> None:
    """Replace the file in one step."""
    write_private(path_in(Path(fleet.state_dir)), json.dumps(asdict(fleet), indent=1) + "\n")


def read(state_dir: Path) -> Fleet | None:
    """Return the fleet last written; None when there never was one."""
    path = path_in(state_dir)
    if not path.exists():
        return None
    values = json.loads(path.read_text(encoding="utf-8"))
    return Fleet(**values | {"processes": _processes(values["processes"])})


def _processes(rows: Iterable[dict[str, Any]]) -> tuple[FleetProcess, ...]:
    return tuple(FleetProcess(**row | {"cores": tuple(row["cores"]) if row["cores"] else None}) for row in rows)
