"""A small bulk run in plain httpx: `python examples/bulk_jsonl.py documents.jsonl results.jsonl`.

Every line of the input is `{"id": ..., "text": ...}`. Running it again runs nothing twice: each line has an idempotency
key of its own. For folders, CSV, resuming and a progress bar there is `tokenmill run`.

Needs httpx, and TOKENMILL_API_URL and TOKENMILL_API_KEY in the environment.
"""

import hashlib
import hmac
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

INSTRUCTION = "Summarise this document in one sentence, in its own language."
IN_FLIGHT = 64
BUSY = {429, 503}
FINAL = {"completed", "failed", "cancelled", "expired", "dead"}
API_KEY = os.environ["TOKENMILL_API_KEY"]


def submit(client: httpx.Client, line: str) -> str:
    """Submit one line and return its job's id; wait while the fleet is busy."""
    body = {"prompt": f"{INSTRUCTION}\n\n{json.loads(line)['text']}", "sampling": {"max_tokens": 64}}
    # Keyed, so that the key tells nobody what the document says.
    key = hmac.new(API_KEY.encode(), json.dumps([line, body]).encode(), hashlib.sha256).hexdigest()
    while True:
        answer = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
        if answer.status_code not in BUSY:
            return str(answer.raise_for_status().json()["id"])
        time.sleep(float(answer.headers.get("Retry-After", 1)))


def result(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Wait for the end of a job."""
    while True:
        job: dict[str, Any] = client.get(f"/v1/jobs/{job_id}", params={"wait": 30}).raise_for_status().json()
        if job["status"] in FINAL:
            return job


def results(client: httpx.Client, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the jobs in the order of `lines`, with up to IN_FLIGHT of them submitted ahead."""
    waiting: deque[str] = deque()
    for line in lines:
        waiting.append(submit(client, line))
        if len(waiting) == IN_FLIGHT:
            yield result(client, waiting.popleft())
    while waiting:
        yield result(client, waiting.popleft())


def main(source: Path, target: Path) -> None:
    """Write one line per line of `source`, in its order."""
    headers = {"Authorization": f"Bearer {API_KEY}"}
    with (
        httpx.Client(base_url=os.environ["TOKENMILL_API_URL"], headers=headers, timeout=60) as client,
        source.open(encoding="utf-8") as lines,
        target.open("w", encoding="utf-8") as output,
    ):
        for job in results(client, (line for line in lines if line.strip())):
            record = {"job_id": job["id"], "status": job["status"], "output": job["output"], "error": job["error"]}
            output.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
