"""`/health` says that the process runs, `/ready` that a job submitted now would be worked on."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from api.errors import RETRY_AFTER_SECONDS, error_body
from shared.errors import ServiceUnavailableError, TokenmillError

CHECK_SECONDS = 3.0
router = APIRouter(tags=["health"])
Check = Callable[[], str | None]


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Every part answers; `checks` has one entry per part, null when it is well."""

    status: Literal["ready"] = "ready"
    checks: dict[str, None]


class Readiness:
    """Runs the checks side by side, each at most once at a time: a part that hangs costs one thread, not many."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        """Take checks that return None, return a reason, or raise."""
        self._checks = checks
        self._running: dict[str, asyncio.Task[str | None]] = {}

    async def reasons(self) -> dict[str, str | None]:
        """Return per part None, or why it is not ready."""
        found = await asyncio.gather(*map(self._reason, self._checks))
        return dict(zip(self._checks, found, strict=True))

    async def _reason(self, name: str) -> str | None:
        task = self._running.get(name)
        if task is None or task.done():
            task = self._running[name] = asyncio.create_task(asyncio.to_thread(self._checks[name]))
        try:
            return await asyncio.wait_for(asyncio.shield(task), CHECK_SECONDS)
        except TimeoutError:
            return "does not answer"
        except TokenmillError as error:
            return error.message
        except Exception as error:  # noqa: BLE001  # a check may fail in any way; its kind is the reason
            return f"is away ({type(error).__name__})"


def _readiness(request: Request) -> Readiness:
    readiness: Readiness = request.app.state.services.readiness
    return readiness


@router.get("/health")
async def health() -> Health:
    """Whether the process runs."""
    return Health()


@router.get("/ready", response_model=Ready, responses={503: {"description": "Not ready; `reasons` says why"}})
async def ready(readiness: Annotated[Readiness, Depends(_readiness)]) -> Response:
    """Whether database, broker and a worker of the default model are there."""
    checks = await readiness.reasons()
    reasons = [f"{name}: {reason}" for name, reason in checks.items() if reason is not None]
    if not reasons:
        return JSONResponse(Ready(checks=dict.fromkeys(checks)).model_dump())
    body = error_body(ServiceUnavailableError.code, f"not ready: {'; '.join(reasons)}")
    content = {"status": "not_ready", "reasons": reasons, "checks": checks, **body}
    return JSONResponse(content, 503, {"Retry-After": str(RETRY_AFTER_SECONDS)})
