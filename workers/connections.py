"""Databases as the processes of this package open them."""

from shared.database import Database
from shared.errors import ConfigurationError
from shared.settings import Settings


def open_database(settings: Settings, role: str, *, pool_size: int = 5) -> Database:
    """Open the database of `settings`; `role` is the name the server shows for its connections.

    Raises:
        ConfigurationError: no URL is set.
    """
    if settings.database_url is None:
        raise ConfigurationError(
            "set TOKENMILL_DATABASE_URL, or start the fleet with `tokenmill up`", field="database_url"
        )
    return Database(settings.database_url.get_secret_value(), pool_size=pool_size, application_name=f"tokenmill {role}")
