"""The API for short commands: one call, one answer, or an error that says what to do."""

from typing import Any, Self

import httpx

from cli.connection import Connection
from shared.errors import (
    AuthenticationError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    StateConflictError,
    TokenmillError,
)

TIMEOUT_SECONDS = 30.0
_BY_STATUS: dict[int, type[TokenmillError]] = {
    400: InvalidInputError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: StateConflictError,
    422: InvalidInputError,
    503: ServiceUnavailableError,
}


class Client:
    """Synchronous calls with one key; a context manager."""

    def __init__(self, connection: Connection) -> None:
        """Connect lazily. Proxies of the environment are not used for a URL that names the API itself."""
        self._url = connection.url
        headers = {"Authorization": f"Bearer {connection.key}"}
        self._http = httpx.Client(base_url=connection.url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self._http.close()

    def get(self, path: str, **parameters: str | float | None) -> Any:  # noqa: ANN401  # JSON
        """Return the answer to a GET; parameters that are None are left out."""
        return self._call("GET", path, {name: value for name, value in parameters.items() if value is not None})

    def post(self, path: str) -> Any:  # noqa: ANN401  # JSON
        """Return the answer to a POST without a body."""
        return self._call("POST", path, {})

    def _call(self, method: str, path: str, parameters: dict[str, str | float]) -> Any:  # noqa: ANN401  # JSON
        try:
            response = self._http.request(method, path, params=parameters)
        except httpx.HTTPError as error:
            raise ServiceUnavailableError(
                f"the API at {self._url} does not answer ({type(error).__name__}): is it up? see `tokenmill status`",
                field="TOKENMILL_API_URL",
            ) from error
        if response.is_error:
            raise _error_of(response)
        return response.json()


def _error_of(response: httpx.Response) -> TokenmillError:
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the API answered HTTP {response.status_code}"
    return _BY_STATUS.get(response.status_code, TokenmillError)(message)
