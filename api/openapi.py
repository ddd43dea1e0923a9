"""The API document: what FastAPI cannot see by itself, because bodies are parsed by `api.json_body`."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from api.job_view import GenerationView, JobView
from api.schemas import JobRequest

_REF = "#/components/schemas/{model}"


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return what tells that an endpoint takes `model`; `document` adds its schema."""
    _BODIES[model.__name__] = model
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_BODIES: dict[str, type[BaseModel]] = {}
JOB_BODY = body_of(JobRequest)
_FASTAPI_422 = "Validation Error"
_MEANINGS = {
    400: "A field is wrong; `param` names it",
    401: "The API key is missing, wrong, expired or revoked",
    403: "The API key lacks a scope",
    404: "No such thing for this API key",
    409: "The state of the job, or an idempotency key, does not allow it",
    413: "The body is too long",
    415: "The body is not declared to be JSON",
    422: "The privacy policy blocks what the text holds",
    429: "The queue is full; see Retry-After",
    500: "The job ended without text",
    503: "The database is away; see Retry-After",
}


class ErrorDetail(BaseModel):
    """What went wrong: `code` for programs, `message` for people, `param` for the field."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    """Body of every error."""

    error: ErrorDetail


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documented error responses of an endpoint; those every endpoint has are added."""
    every = sorted({*statuses, 401, 403, 503})
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in every}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of `app`."""
    built = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = built["components"]["schemas"]
    for name, model in _BODIES.items():
        schema = model.model_json_schema(ref_template=_REF)
        schemas.update({**schema.pop("$defs", {}), name: schema})
    for shown in (JobView, GenerationView):
        # FastAPI leaves nulls out, in examples too, where they tell which fields are always there.
        schemas[shown.__name__]["examples"] = shown.model_json_schema()["examples"]
    for operation in (operation for path in built["paths"].values() for operation in path.values()):
        # FastAPI documents its own 422, which this API never sends.
        if operation["responses"].get("422", {}).get("description") == _FASTAPI_422:
            del operation["responses"]["422"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return built
