"""Jobs through the whole fleet (API to results) with one worker and with two, each pinned to a core of its own.

usage: python benchmarks/scaling.py [--jobs 192] [--runs 3]

Runs alternate between the two fleets' sizes. The figure is jobs per second from the first start to the last end, by
the database's clock; API, servers and maintenance run on the same cores as the workers. 192 jobs fill 32 slots three
times over with two workers and six times with one: other numbers measure the tail.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import psycopg

ROOT = Path(__file__).parents[1]
PROMPT = "Summarise: the pump failed twice because a seal was worn. The seal was replaced, report {number}."
SAMPLING = {"max_tokens": 48, "ignore_eos": True}


def command(state_dir: Path, *arguments: str, **settings: str) -> str:
    """Run the command line on a fleet of its own; return what it prints."""
    environment = {**os.environ, "TOKENMILL_STATE_DIR": str(state_dir), "TOKENMILL_MAX_MODEL_LEN": "512", **settings}
    run = [sys.executable, "-m", "cli.main", *arguments]
    return subprocess.run(run, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def jobs_per_second(state_dir: Path, workers: int, jobs: int) -> float:
    """Start the fleet with `workers` workers, run `jobs` jobs, stop it."""
    command(state_dir, "up", "--detach", "--workers", str(workers))
    try:
        status = json.loads(command(state_dir, "status", "--json"))
        key = Path(status["key_file"]).read_text(encoding="utf-8").strip()
        with httpx.Client(base_url=status["api_url"], headers={"Authorization": f"Bearer {key}"}, timeout=90) as client:
            return run_jobs(client, status["database_url"], jobs)
    finally:
        command(state_dir, "down")


def run_jobs(client: httpx.Client, database_url: str, jobs: int) -> float:
    """Submit `jobs` jobs, wait for all, return jobs per second."""
    bodies = [{"prompt": PROMPT.format(number=number), "sampling": SAMPLING} for number in range(jobs)]
    ids = [client.post("/v1/jobs", json=body).raise_for_status().json()["id"] for body in bodies]
    for job_id in ids:
        while client.get(f"/v1/jobs/{job_id}", params={"wait": 60}).json()["status"] in {"queued", "running"}:
            pass
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM max(finished_at) - min(started_at)), count(*) FROM job"
            " WHERE id = ANY(%s) AND state = 'completed'",
            [ids],
        ).fetchone()
    if row is None or row[1] != jobs:
        raise SystemExit("not all jobs completed")
    return jobs / float(row[0])


def main() -> None:
    """Print jobs per second of both sizes and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=192)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    figures: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as directory:
        state_dir = Path(directory) / "state"
        for _ in range(options.runs):
            for workers, rates in figures.items():
                rates.append(jobs_per_second(state_dir, workers, options.jobs))
        command(state_dir, "down", "--purge", "--yes")
    medians = {workers: statistics.median(rates) for workers, rates in figures.items()}
    print(f"\nworkers  jobs/s (median of {options.runs}; {options.jobs} jobs of 48 tokens, through the whole fleet)")
    for workers, rates in figures.items():
        print(f"{workers:7d}  {medians[workers]:6.2f}   runs: {' '.join(f'{rate:.2f}' for rate in rates)}")
    print(f"ratio    {medians[2] / medians[1]:6.2f}")


if __name__ == "__main__":
    main()
