"""What wraps every request: its identifier, its log line, security headers, and a last answer."""

import re
import time

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import error_response, internal_error
from shared.identifiers import new_id
from shared.privacy.scrubber import Scrubber

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
QUIET_PATHS = frozenset({"/health", "/ready"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9-]{8,64}")
_scrubber = Scrubber()
_log = structlog.get_logger(__name__)


def request_id_from(presented: str | None) -> str:
    """Return the caller's identifier when it is a plain one without personal data, else a fresh one."""
    if presented is not None and _REQUEST_ID.fullmatch(presented) and not _is_personal(presented):
        return presented
    return new_id("req").replace("_", "-")


def _is_personal(identifier: str) -> bool:
    # Once as it stands and once in words: a dash before a number hides it from recognizers.
    return any(_scrubber.detect(text) for text in (identifier, identifier.replace("-", " ")))


class RequestContext:
    """Gives each request an identifier, logs one line for it, and answers what no handler did."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`; this must be the outermost middleware."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; anything but HTTP passes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_from(Headers(scope=scope).get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id
        with structlog.contextvars.bound_contextvars(correlation_id=request_id):
            await self._serve(scope, receive, _Answer(send, request_id))

    async def _serve(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        begun = time.perf_counter()
        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            _log.info("client_left")
        except Exception:  # noqa: BLE001  # the last handler: whatever it is, the client gets an answer and we a log line
            _log.error("unexpected_error", exc_info=True)
            if answer.status is None:
                await error_response(internal_error())(scope, receive, answer)
        finally:
            _log_request(scope, answer.status, time.perf_counter() - begun)


class _Answer:
    """Sends on, and adds the headers every response carries."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._headers = {**SECURITY_HEADERS, "X-Request-ID": request_id}
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message).update(self._headers)
        await self._send(message)


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    # The route's template, not the path: what callers put into a path is theirs.
    path = getattr(scope.get("route"), "path", "unmatched")
    log = _log.debug if path in QUIET_PATHS else _log.info
    log(
        "request",
        method=scope["method"],
        path=path,
        status_code=status,
        milliseconds=round(seconds * 1000, 1),
        api_key_id=scope["state"].get("api_key_id"),
    )
