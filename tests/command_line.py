"""Commands run in the test's process, on the test's database."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shared.settings import Settings, get_settings


@contextmanager
def environment_of(settings: Settings, monkeypatch: pytest.MonkeyPatch, **others: str) -> Iterator[None]:
    """Let commands read `settings` (database and key) from the environment; `others` go before."""
    assert settings.database_url is not None
    assert settings.encryption_key is not None
    variables = {
        "TOKENMILL_DATABASE_URL": settings.database_url.get_secret_value(),
        "TOKENMILL_ENCRYPTION_KEY": settings.encryption_key.get_secret_value(),
        **others,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    try:
        yield
    finally:
        get_settings.cache_clear()
