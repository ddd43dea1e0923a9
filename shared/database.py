"""Connections and the one place that commits."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.orm import Session, sessionmaker

from shared.errors import ConfigurationError

CONNECT_TIMEOUT_SECONDS = 5
STATEMENT_TIMEOUT_MS = 30_000
TCP_USER_TIMEOUT_MS = 15_000


def database_url(raw: str) -> URL:
    """Parse `raw` and select psycopg 3.

    Raises:
        ConfigurationError: it is not a PostgreSQL URL.
    """
    url = make_url(raw)
    if url.get_backend_name() != "postgresql":
        raise ConfigurationError("TOKENMILL_DATABASE_URL must be a postgresql:// URL", field="TOKENMILL_DATABASE_URL")
    return url.set(drivername="postgresql+psycopg")


class Database:
    """Engine and transactions of one process. Create it after forking; close it when done."""

    def __init__(self, url: str, *, pool_size: int = 5, application_name: str = "tokenmill") -> None:
        """Open lazily: no connection is made before the first transaction."""
        self.engine: Engine = create_engine(
            database_url(url),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            pool_timeout=CONNECT_TIMEOUT_SECONDS,
            hide_parameters=True,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "application_name": application_name,
                "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c timezone=UTC",
                "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
            },
        )
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Run a block in one transaction: commit at its end, roll back on any exception."""
        with self._sessions() as session, session.begin():
            yield session

    def ping(self) -> None:
        """Raise when the database does not answer."""
        with self.engine.connect() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()
