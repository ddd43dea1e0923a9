"""Errors of the HTTP surface, and the one place that maps errors to statuses.

Every error body has OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.
"""

import re
from collections.abc import Mapping

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.validation import invalid_input
from shared.errors import MethodNotAllowedError, ServiceUnavailableError, TokenmillError

RETRY_AFTER_SECONDS = 2
DEFAULT_STATUS = 500
LASTING = frozenset({409})

STATUS: Mapping[str, int] = {
    "invalid_input": 400,
    "prompt_too_long": 400,
    "model_unsupported": 400,
    "privacy_blocked": 422,
    "invalid_api_key": 401,
    "permission_denied": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
    "cancelled": 409,
    "idempotency_conflict": 409,
    "lease_lost": 409,
    "state_conflict": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "queue_full": 429,
    "attempts_exhausted": 500,
    "configuration_error": 500,
    "encryption_key_missing": 503,
    "decryption_failed": 500,
    "download_failed": 500,
    "generation_failed": 500,
    "internal_error": 500,
    "model_corrupt": 500,
    "scrub_failed": 500,
    "server_start_failed": 503,
    "service_unavailable": 503,
    "worker_stopping": 503,
    "deadline_exceeded": 504,
}
TYPES: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_INDEX = re.compile(r"\[(\d+)\]")
_log = structlog.get_logger(__name__)


def status_of(code: str) -> int:
    """Return the HTTP status of an error code."""
    return STATUS.get(code, DEFAULT_STATUS)


def error_body(code: str, message: str, param: str | None = None) -> dict[str, object]:
    """Return the body of an error response."""
    status = status_of(code)
    kind = TYPES.get(status, "server_error" if status >= DEFAULT_STATUS else "invalid_request_error")
    # Paths read `messages.0.content`, whoever wrote them.
    dotted = None if param is None else _INDEX.sub(r".\1", param)
    return {"error": {"message": message, "type": kind, "param": dotted, "code": code}}


def error_response(error: TokenmillError, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the response that tells a client of `error`."""
    status = status_of(error.code)
    return JSONResponse(
        error_body(error.code, error.message, error.field), status, headers={**_headers(status), **(headers or {})}
    )


def _headers(status: int) -> dict[str, str]:
    if status == 401:  # noqa: PLR2004  # HTTP statuses are their own names
        return {"WWW-Authenticate": "Bearer"}
    if status in {429, 503}:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return {"x-should-retry": "false"} if status in LASTING else {}


def internal_error() -> TokenmillError:
    """Return the error shown for anything unforeseen: it says nothing of the cause."""
    return TokenmillError("internal error: give the X-Request-ID of this response to the operator")


def database_is_away(error: SQLAlchemyError) -> bool:
    """Whether `error` says that PostgreSQL could not be reached or gave up, rather than that a statement is wrong."""
    unreachable = isinstance(error, OperationalError | InterfaceError | PoolTimeoutError)
    return unreachable or (isinstance(error, DBAPIError) and error.connection_invalidated)


async def _on_tokenmill_error(_request: Request, error: Exception) -> Response:
    return error_response(error if isinstance(error, TokenmillError) else internal_error())


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    details = error.errors() if isinstance(error, RequestValidationError) else []
    return error_response(invalid_input(details))


async def _on_database_error(_request: Request, error: Exception) -> Response:
    away = isinstance(error, SQLAlchemyError) and database_is_away(error)
    _log.error("database_away" if away else "database_error", error_type=type(error).__name__, exc_info=error)
    if not away:
        return error_response(internal_error())
    return error_response(ServiceUnavailableError("the database is away: try again in a moment"))


async def _on_http_exception(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else DEFAULT_STATUS
    headers = error.headers if isinstance(error, HTTPException) else None
    return error_response(_of_status(status), headers=headers)


def _of_status(status: int) -> TokenmillError:
    if status == 404:  # noqa: PLR2004  # HTTP statuses are their own names
        return _NotFoundPathError("no such path: the API document is at /openapi.json")
    if status == 405:  # noqa: PLR2004  # see above
        return MethodNotAllowedError("this path does not take this method: see /openapi.json")
    return internal_error()


class _NotFoundPathError(TokenmillError):
    code = "not_found"


def install(app: FastAPI) -> None:
    """Register the handlers; what they do not cover, the request context middleware answers."""
    app.add_exception_handler(TokenmillError, _on_tokenmill_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(SQLAlchemyError, _on_database_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
