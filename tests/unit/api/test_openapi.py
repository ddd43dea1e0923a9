import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from api import openapi
from api.app import create_app
from api.job_view import GenerationView, JobView
from api.json_body import parse
from api.schemas import JobRequest
from shared.crypto import generate_key
from shared.settings import Settings

Document = dict[str, Any]


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(
        Settings.model_validate(
            {
                "database_url": "postgresql://localhost/none",
                "redis_url": "redis://localhost/0",
                "encryption_key": generate_key(),
            }
        )
    )


@pytest.fixture(scope="module")
def document(app: FastAPI) -> Document:
    return openapi.document(app)


def references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_every_endpoint_is_documented(document: Document) -> None:
    assert {(method, path) for path, operations in document["paths"].items() for method in operations} == {
        ("post", "/v1/jobs"),
        ("get", "/v1/jobs"),
        ("get", "/v1/jobs/{job_id}"),
        ("delete", "/v1/jobs/{job_id}"),
        ("post", "/v1/jobs/{job_id}/cancel"),
        ("post", "/v1/jobs/{job_id}/retry"),
        ("post", "/generate"),
        ("post", "/v1/scrub"),
        ("get", "/v1/workers"),
        ("get", "/health"),
        ("get", "/ready"),
    }


def test_only_what_is_answered_is_documented(document: Document) -> None:
    answers_422 = {path for path, ops in document["paths"].items() for op in ops.values() if "422" in op["responses"]}
    assert answers_422 == {"/v1/scrub"}
    assert "ScrubRequest" in document["components"]["schemas"]


def test_every_reference_leads_somewhere(document: Document) -> None:
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas


def test_all_but_health_needs_a_key(document: Document) -> None:
    open_paths = {path for path, ops in document["paths"].items() for op in ops.values() if "security" not in op}
    assert open_paths == {"/health", "/ready"}
    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


def test_the_examples_are_valid(document: Document) -> None:
    schemas = document["components"]["schemas"]
    for example in schemas["JobRequest"]["examples"]:
        assert parse(JobRequest, json.dumps(example).encode()).conversation()
    for model in (JobView, GenerationView):
        for example in schemas[model.__name__]["examples"]:
            assert json.loads(model.model_validate(example).model_dump_json()) == example


def test_title_and_version(document: Document) -> None:
    assert document["info"]["title"] == "Tokenmill"
    assert document["info"]["version"]
