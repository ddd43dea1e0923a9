"""A fleet in one file, spoken to over real HTTP: jobs, idempotency keys, retries, and trouble on demand."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INSTRUCTION = "Repeat:"


class SmallFleet:
    """Completes a job when it is asked for; `fails`, `refuses` and `answers` script what goes wrong."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: dict[str, dict[str, Any]] = {}
        self.by_key: dict[str, str] = {}
        self.posts = 0
        self.retries = 0
        self.generated: Counter[str] = Counter()
        self.unfinished = self.most_unfinished = 0
        self.fails: set[str] = set()
        self.refuses: dict[str, tuple[int, str]] = {}
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.polls_needed: dict[str, int] = {}
        self.finishing = threading.Event()
        self.finishing.set()

    def submit(self, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        text = body["messages"][0]["content"].removeprefix(f"{INSTRUCTION}\n\n")
        self.posts += 1
        if text in self.refuses:
            status, code = self.refuses[text]
            return status, {"error": {"code": code, "message": "refused by the test"}}, {}
        if key in self.by_key:
            return 200, self.jobs[self.by_key[key]], {"Idempotent-Replay": "true"}
        job = {"id": f"job_{len(self.jobs)}", "status": "queued", "text": text, "polls": self.polls_needed.get(text, 0)}
        self.by_key[key] = job["id"]
        self.jobs[job["id"]] = job
        self.unfinished += 1
        self.most_unfinished = max(self.most_unfinished, self.unfinished)
        return 202, job, {}

    def poll(self, job: dict[str, Any]) -> None:
        if job["status"] != "queued" or not self.finishing.is_set():
            return
        job["polls"] -= 1
        if job["polls"] < 0:
            self.finish(job)

    def finish(self, job: dict[str, Any]) -> None:
        self.unfinished -= 1
        text = job["text"]
        self.generated[text] += 1
        if text in self.fails:
            error = {"code": "generation_failed", "message": "failed by the test", "retryable": True}
            job.update(status="failed", error=error)
            return
        usage = {"prompt_tokens": 5, "cached_tokens": 1, "completion_tokens": 3, "total_tokens": 8}
        privacy = {"entities": {"EMAIL": 1}, "policy": "default@1", "ms": 0.1}
        job.update(
            status="completed", output=f"<{text}>", finish_reason="stop", usage=usage, privacy=privacy, error=None
        )

    def retry(self, job: dict[str, Any]) -> None:
        self.retries += 1
        self.unfinished += 1
        job.update(status="queued", polls=0, error=None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fleet: SmallFleet

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.fleet.lock:
            if self.fleet.answers:
                status, headers = self.fleet.answers.pop(0)
                self._answer(status, {"error": {"code": "service_unavailable", "message": "later"}}, headers)
            elif self.path.endswith("/retry"):
                job = self.fleet.jobs[self.path.split("/")[3]]
                self.fleet.retry(job)
                self._answer(202, job, {})
            else:
                self._answer(*self.fleet.submit(self.headers["Idempotency-Key"], json.loads(body)))

    def do_GET(self) -> None:
        with self.fleet.lock:
            job = self.fleet.jobs[self.path.split("/")[3].split("?")[0]]
            self.fleet.poll(job)
            waiting = job["status"] == "queued"
            self._answer(200, job, {})
        if waiting:
            self.fleet.finishing.wait(0.01)

    def _answer(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def serving(fleet: SmallFleet, port: int = 0) -> Iterator[str]:
    """Serve `fleet` and yield its URL."""
    handler = type("Handler", (_Handler,), {"fleet": fleet, "disable_nagle_algorithm": True})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
