"""Where the API is and which key to present: settings first, then the fleet of this machine."""

from dataclasses import dataclass, field
from pathlib import Path

from cli.supervisor import fleet_file
from cli.supervisor.fleet_file import Fleet, key_file
from shared.errors import AuthenticationError, ServiceUnavailableError
from shared.settings import Settings


@dataclass(frozen=True)
class Connection:
    """An API and a key for it."""

    url: str
    key: str = field(repr=False)


def find_connection(settings: Settings) -> Connection:
    """Return the API to talk to.

    Raises:
        ServiceUnavailableError: no URL is set and no fleet runs in the state directory.
        AuthenticationError: no key is set and none stands in the state directory.
    """
    return Connection(settings.api_url.rstrip("/") if settings.api_url else _local(settings).api_url, _key(settings))


def _local(settings: Settings) -> Fleet:
    fleet = fleet_file.read(settings.state_dir)
    if fleet is None or fleet.supervisor is None:
        raise ServiceUnavailableError(
            f"no fleet runs in {settings.state_dir.absolute()}: start one with `tokenmill up`, "
            "or set TOKENMILL_API_URL and TOKENMILL_API_KEY",
            field="TOKENMILL_API_URL",
        )
    return fleet


def _key(settings: Settings) -> str:
    if settings.api_key is not None:
        return settings.api_key.get_secret_value()
    path: Path = key_file(settings.state_dir)
    # A key of this machine is not sent to an API elsewhere.
    if settings.api_url is not None or not path.exists():
        raise AuthenticationError("no API key: set TOKENMILL_API_KEY", field="TOKENMILL_API_KEY")
    return path.read_text(encoding="utf-8").strip()
