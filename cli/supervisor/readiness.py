"""Waits until a fleet works: its API says `/ready`, or something keeps failing."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx

from cli.embedded.files import tail
from cli.supervisor import fleet_file
from cli.supervisor.fleet_file import Fleet
from shared.errors import ServerStartError

POLL_SECONDS = 0.3
CHECK_SECONDS = 5.0
RESTARTS_TOLERATED = 3


def is_ready(api_url: str) -> bool:
    """Whether the API, and all it needs, works now."""
    try:
        return httpx.get(f"{api_url}/ready", timeout=CHECK_SECONDS, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def wait_ready(state_dir: Path, supervisor_alive: Callable[[], bool], seconds: float) -> Fleet:
    """Return the fleet once it is ready.

    Raises:
        ServerStartError: the supervisor ended, a process crashed again and again, or time is up; with the log's end.
    """
    deadline = time.monotonic() + seconds
    while supervisor_alive():
        fleet = fleet_file.read(state_dir)
        if fleet is not None and fleet.supervisor is not None:
            if is_ready(fleet.api_url):
                return fleet
            _refuse_crash_loop(fleet, state_dir)
        if time.monotonic() > deadline:
            raise _failure(f"the fleet was not ready within {seconds:.0f} s", state_dir, "supervisor")
        time.sleep(POLL_SECONDS)
    raise _failure("the supervisor ended", state_dir, "supervisor")


def _refuse_crash_loop(fleet: Fleet, state_dir: Path) -> None:
    for name, restarts in fleet.restarts.items():
        if restarts >= RESTARTS_TOLERATED:
            raise _failure(f"{name} crashed {restarts} times", state_dir, name)


def _failure(what: str, state_dir: Path, name: str) -> ServerStartError:
    path = state_dir / "logs" / f"{name}.log"
    return ServerStartError(f"{what}; {path} ends:\n{tail(path)}")
