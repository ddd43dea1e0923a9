"""A client of the API under test, and a stand-in for the worker that drives the same leases a worker does."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from httpx2 import Response
from sqlalchemy import text
from starlette.testclient import TestClient

from shared import api_keys, leases
from shared.crypto import KeyRing
from shared.database import Database
from shared.leases import FinishedOutput, JobError
from shared.states import JobState

LEASE = timedelta(minutes=5)
RECEIPT = {"entities": {"PHONE": 1}, "policy": "default@1", "ms": 0.4}


@dataclass
class Api:
    client: TestClient
    database: Database
    keyring: KeyRing
    key: str

    def key_with(self, *scopes: str) -> str:
        with self.database.transaction() as session:
            return api_keys.create(session, self.keyring, "another", scopes)

    def call(self, method: str, path: str, *, key: str | None = None, headers: Any = None, **options: Any) -> Response:  # noqa: ANN401  # passed through
        authorization = {"Authorization": f"Bearer {key or self.key}"}
        return self.client.request(method, path, headers={**authorization, **(headers or {})}, **options)

    def post(self, path: str, body: object = None, **options: Any) -> Response:  # noqa: ANN401  # passed through
        return self.call("POST", path, json=body, **options)

    def get(self, path: str, **options: Any) -> Response:  # noqa: ANN401  # passed through
        return self.call("GET", path, **options)

    def submit(self, prompt: str = "Say hello.", **body: object) -> dict[str, Any]:
        answer = self.post("/v1/jobs", {"prompt": prompt, **body})
        assert answer.status_code == 202, answer.text
        job: dict[str, Any] = answer.json()
        return job

    def count(self, table: str) -> int:
        with self.database.transaction() as session:
            return int(session.scalars(text(f"SELECT count(*) FROM {table}")).one())  # noqa: S608  # our own table names

    def claim(self, job_id: str) -> int:
        with self.database.transaction() as session:
            job = leases.claim(session, job_id, "worker-1", LEASE)
            assert job is not None
            return job.fence

    def complete(self, job_id: str, output: str = "Hello!") -> None:
        fence = self.claim(job_id)
        sealed = self.keyring.seal(json.dumps({"text": output}).encode(), context=f"job:{job_id}:output")
        finished = FinishedOutput(
            output_ciphertext=sealed.blob,
            output_key_id=sealed.key_id,
            finish_reason="stop",
            prompt_tokens=20,
            cached_tokens=4,
            completion_tokens=10,
            queue_ms=5.0,
            prefill_ms=50.0,
            decode_ms=200.0,
            model_version="tiny-chat@v1",
            privacy_receipt=RECEIPT,
        )
        with self.database.transaction() as session:
            assert leases.complete(session, job_id, fence, finished)

    def end(self, job_id: str, state: JobState, code: str = "generation_failed") -> None:
        fence = self.claim(job_id)
        with self.database.transaction() as session:
            assert leases.close(session, job_id, fence, state, JobError(code, "the engine failed", retryable=True))
