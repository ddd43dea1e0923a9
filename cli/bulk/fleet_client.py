"""The API as a bulk run sees it: calls that wait out busy and absent fleets, and repeat without repeating work."""

import asyncio
import hashlib
import hmac
import itertools
import json
import ssl
from typing import Any, ClassVar, NamedTuple, Self

import httpx

from cli.bulk.outage import Outage, delay_before
from shared.errors import (
    AuthenticationError,
    ConfigurationError,
    ModelNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TokenmillError,
)

LONG_POLL_SECONDS = 10
READ_TIMEOUT_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 5.0
BUSY = 429
UNAVAILABLE = frozenset({500, 502, 503, 504})
FATAL: dict[str, type[TokenmillError]] = {
    AuthenticationError.code: AuthenticationError,
    PermissionDeniedError.code: PermissionDeniedError,
    ModelNotFoundError.code: ModelNotFoundError,
    "http_404": ConfigurationError,
}
FATAL_STATUS: dict[int, type[TokenmillError]] = {401: AuthenticationError, 403: PermissionDeniedError}

Job = dict[str, Any]


class RefusedError(TokenmillError):
    """Raised when the API refuses one call for a reason that repeating does not mend."""

    code: ClassVar[str] = "refused"

    def __init__(self, message: str, *, reason: str) -> None:
        """Keep the API's own error code as `reason`."""
        super().__init__(message)
        self.reason = reason


class Submitted(NamedTuple):
    """A job and whether an earlier submission made it."""

    job: Job
    replayed: bool


class FleetClient:
    """Asynchronous calls of one API key. Use it as a context manager inside the event loop."""

    def __init__(self, base_url: str, api_key: str, *, first_limit: float = 5.0, outage_limit: float = 300.0) -> None:
        """Give up after `first_limit` seconds without a first answer, later after `outage_limit` without any."""
        self._key = api_key.encode()
        self.outage = Outage(first_limit, outage_limit)
        self._outage_limit = outage_limit
        self._base_url = base_url
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=httpx.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS, pool=None),
            # Documents go to the fleet itself, never to a proxy the environment happens to name.
            trust_env=False,
            verify=ssl.create_default_context() if base_url.startswith("https") else True,
        )

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def submit(self, body: dict[str, Any], key: str) -> Submitted:
        """Submit a job under `key`; the same key gives the same job back.

        Raises:
            RefusedError: this document is refused.
            TokenmillError: every document would be: wrong API key, unknown model, fleet away for too long.
        """
        content = json.dumps(body).encode()
        headers = {"Idempotency-Key": self._sealed(key), "Content-Type": "application/json"}
        response = await self._call("POST", "/v1/jobs", content=content, headers=headers)
        return Submitted(_job(response), response.headers.get("Idempotent-Replay") == "true")

    async def wait(self, job_id: str, seconds: int = LONG_POLL_SECONDS) -> Job:
        """Return the job once it ends, or as it is after `seconds`."""
        return _job(await self._call("GET", f"/v1/jobs/{job_id}", params={"wait": seconds}))

    async def retry(self, job_id: str) -> Job:
        """Queue a job anew that ended without a result."""
        return _job(await self._call("POST", f"/v1/jobs/{job_id}/retry"))

    def _sealed(self, key: str) -> str:
        # A plain digest on the server would let its reader confirm a guessed document.
        return "run-" + hmac.new(self._key, key.encode(), hashlib.sha256).hexdigest()

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401  # httpx's own
        # One document the API always fails on must not hold up a fleet that is there for all others.
        own = Outage(self._outage_limit, self._outage_limit)
        for attempt in itertools.count():
            response = await self._once(method, path, own, **options)
            if response is not None and response.is_success:
                self.outage.end()
                return response
            if response is not None and response.status_code not in UNAVAILABLE | {BUSY}:
                raise _refusal(response)
            retry_after = response.headers.get("Retry-After") if response is not None else None
            await asyncio.sleep(delay_before(attempt, retry_after))
        raise AssertionError  # pragma: no cover  # itertools.count never ends

    async def _once(self, method: str, path: str, own: Outage, **options: Any) -> httpx.Response | None:  # noqa: ANN401  # httpx's own
        try:
            response = await self._http.request(method, path, **options)
        except httpx.TransportError as error:
            self._note(own, f"no answer from {self._base_url} ({type(error).__name__})")
            return None
        if response.status_code == BUSY:
            self.outage.end()
            own.end()
            self.outage.reason = "the fleet's queue is full"
        elif response.status_code in UNAVAILABLE:
            self._note(own, f"{self._base_url} answers {response.status_code}")
        return response

    def _note(self, own: Outage, reason: str) -> None:
        if self.outage.note(reason):
            raise ServiceUnavailableError(f"{reason}: start the fleet with `tokenmill up`, or check TOKENMILL_API_URL")
        if own.note(reason):
            raise RefusedError(f"{reason}: run the same command again", reason=ServiceUnavailableError.code)


def _job(response: httpx.Response) -> Job:
    try:
        job: Job = response.json()
        return {**job, "id": job["id"], "status": job["status"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{response.url.host} is no Tokenmill API: check TOKENMILL_API_URL") from error


def _refusal(response: httpx.Response) -> TokenmillError:
    code, message = _error_of(response)
    fatal = FATAL.get(code) or FATAL_STATUS.get(response.status_code)
    return fatal(message) if fatal else RefusedError(message, reason=code)


def _error_of(response: httpx.Response) -> tuple[str, str]:
    try:
        error = response.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return (
            f"http_{response.status_code}",
            f"{response.url.host} answered {response.status_code}: check TOKENMILL_API_URL",
        )
