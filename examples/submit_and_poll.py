"""Submit one document and wait for its result: `python examples/submit_and_poll.py examples/documents/01-*.txt`.

Needs httpx, and TOKENMILL_API_URL and TOKENMILL_API_KEY in the environment.
"""

import os
import sys
import uuid
from pathlib import Path

import httpx

INSTRUCTION = "Summarise this document in one sentence, in its own language."
FINAL = {"completed", "failed", "cancelled", "expired", "dead"}


def main(path: Path) -> int:
    """Print the model's output for the document at `path`; return the exit code."""
    document = path.read_text(encoding="utf-8")
    body = {"prompt": f"{INSTRUCTION}\n\n{document}", "sampling": {"max_tokens": 64}}
    headers = {"Authorization": f"Bearer {os.environ['TOKENMILL_API_KEY']}"}
    with httpx.Client(base_url=os.environ["TOKENMILL_API_URL"], headers=headers, timeout=60) as client:
        # The key makes it safe to send the same submission again when the answer is lost.
        answer = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": str(uuid.uuid4())})
        answer.raise_for_status()
        job = answer.json()
        while job["status"] not in FINAL:
            # The server answers as soon as the job ends, or after 30 seconds.
            job = client.get(job["status_url"], params={"wait": 30}).raise_for_status().json()
    if job["status"] != "completed":
        print(f"{job['status']}: {job['error']}", file=sys.stderr)
        return 1
    print(job["output"])
    print(f"replaced before inference: {job['privacy']['entities']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
