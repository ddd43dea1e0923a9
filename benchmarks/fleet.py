"""A fleet started for a measurement: the command line runs it, the API takes its jobs, the database keeps the times."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

ROOT = Path(__file__).parents[1]
UNFINISHED = frozenset({"queued", "running"})
POLL_S = 60
SUBMITTERS = 4


def command(state_dir: Path, *arguments: str, **settings: str) -> str:
    """Run the command line on a fleet of its own; return what it prints."""
    environment = {**os.environ, "TOKENMILL_STATE_DIR": str(state_dir), **settings}
    run = [sys.executable, "-m", "cli.main", *arguments]
    return subprocess.run(run, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@dataclass(frozen=True, slots=True)
class RunningFleet:
    """A fleet that takes jobs. `processes` are those of `tokenmill status --json`."""

    client: httpx.Client
    database_url: str
    processes: Sequence[Mapping[str, Any]]

    def submit(self, bodies: Sequence[Mapping[str, Any]]) -> list[str]:
        """Post the jobs, a few at a time; return their ids in order."""
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            return list(pool.map(self._post, bodies))

    def wait(self, ids: Sequence[str]) -> None:
        """Return when every job has ended."""
        for job_id in ids:
            while self._get(job_id)["status"] in UNFINISHED:
                pass

    def compute_s(self, ids: Sequence[str]) -> float:
        """Return the seconds from the first start to the last end, by the database's clock.

        Raises:
            RuntimeError: not all jobs completed.
        """
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute(
                "SELECT extract(epoch FROM max(finished_at) - min(started_at)), count(*) FROM job"
                " WHERE id = ANY(%s) AND state = 'completed'",
                [list(ids)],
            ).fetchone()
        if row is None or row[1] != len(ids):
            raise RuntimeError(f"{0 if row is None else row[1]} of {len(ids)} jobs completed")
        return float(row[0])

    def _post(self, body: Mapping[str, Any]) -> str:
        return str(self.client.post("/v1/jobs", json=body).raise_for_status().json()["id"])

    def _get(self, job_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = (
            self.client.get(f"/v1/jobs/{job_id}", params={"wait": POLL_S}).raise_for_status().json()
        )
        return answer


def _leave(_signal: int, _frame: object) -> None:
    """End by way of every `finally`: a detached fleet would stay."""
    raise SystemExit("stopped")


@contextmanager
def running_fleet(state_dir: Path, workers: int, **settings: str) -> Iterator[RunningFleet]:
    """Start a fleet with `workers` workers in `state_dir`; stop it in the end. Its data stays: see `purge`."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        command(state_dir, "up", "--detach", "--workers", str(workers), **settings)
        status = json.loads(command(state_dir, "status", "--json"))
        key = Path(status["key_file"]).read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=status["api_url"], headers=headers, timeout=POLL_S + 30) as client:
            yield RunningFleet(client, status["database_url"], status["processes"])
    finally:
        command(state_dir, "down")


def purge(state_dir: Path) -> None:
    """Delete the data of a stopped fleet."""
    command(state_dir, "down", "--purge", "--yes")
