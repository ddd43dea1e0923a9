"""Mixed jobs through the whole fleet, from the API to stored results, beside the engine alone on the same cores.

usage: python -m benchmarks.fleet_throughput [--jobs 1000] [--workers N]

The same documents twice: posted to a fleet of N workers, and given as ids to N engines in processes of their own,
pinned to the same cores. Fleet time is from the first start to the last end, by the database's clock; API, servers and
maintenance run on the same cores. *Engine thread*: the share of that time its steps ran, or could have run had another
process not held the core; the rest is time without work for it. 1,000 jobs take about 20 minutes on two cores.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.contestants import installed
from benchmarks.documents import Document, mixed_documents
from benchmarks.fleet import RunningFleet, purge, running_fleet
from benchmarks.machine import Machine
from benchmarks.process_times import by_role, engine_and_others, thread_times
from benchmarks.side_process import SideProcess
from benchmarks.sides.measurement import Figures
from benchmarks.tables import markdown
from shared.settings import get_settings
from shared.tokenizer import ChatTokenizer

MAX_MODEL_LEN = 1024
MAX_NUM_SEQS = 32
WARM_UP_JOBS = 4
ENGINE_TIMEOUT_S = 3600


def through_the_fleet(fleet: RunningFleet, documents: Sequence[Document]) -> list[tuple[str, str]]:
    """Run the documents; return rows of the report, the jobs per second first."""
    fleet.wait(fleet.submit([document.body() for document in documents[:WARM_UP_JOBS]]))
    workers = [process["pid"] for process in fleet.processes if process["role"] == "worker"]
    seconds, threads, start = by_role(fleet.processes), [thread_times(pid) for pid in workers], time.monotonic()
    ids = fleet.submit([document.body() for document in documents])
    submitted = time.monotonic() - start
    fleet.wait(ids)
    wall, compute = time.monotonic() - start, fleet.compute_s(ids)
    spent = {role: value - seconds[role] for role, value in by_role(fleet.processes).items()}
    rows = [
        ("fleet, jobs per second", f"{len(ids) / compute:.3f}"),
        ("fleet, from the first submission to the last result, s", f"{wall:.1f} (submitting {submitted:.1f})"),
        ("fleet, CPU-seconds", ", ".join(f"{role} {value:.1f}" for role, value in spent.items())),
    ]
    for number, (pid, before) in enumerate(zip(workers, threads, strict=True)):
        engine, others = engine_and_others(before, thread_times(pid))
        ran, wanted = engine.ran_s / compute, (engine.ran_s + engine.waited_s) / compute
        text = f"ran {ran:.1%} of the time, ran or waited for its core {wanted:.1%}; other threads {others:.1f} CPU-s"
        rows.append((f"worker {number}, engine thread", text))
    return rows


def offline(
    directory: Path, jobs: Sequence[tuple[list[int], int]], cores: Sequence[int]
) -> tuple[float, list[Figures]]:
    """Run the jobs in one engine per core, dealt out in turn; return jobs per wall second, and each one's figures."""
    sides = [SideProcess("engine", directory, core) for core in cores]
    shares = [list(jobs[index :: len(cores)]) for index in range(len(cores))]

    def run(side: SideProcess, share: Sequence[tuple[list[int], int]]) -> Figures:
        arguments = {"jobs": share, "max_num_seqs": MAX_NUM_SEQS, "max_model_len": MAX_MODEL_LEN}
        return side.measure("given", arguments, ENGINE_TIMEOUT_S)

    try:
        with ThreadPoolExecutor(len(cores)) as pool:
            list(pool.map(run, sides, [share[:WARM_UP_JOBS] for share in shares]))  # loads the models
            start = time.monotonic()
            figures = list(pool.map(run, sides, shares))
            return len(jobs) / (time.monotonic() - start), figures
    finally:
        for side in sides:
            side.close()


def main() -> None:
    """Measure both ways and print the table; what fails on one side leaves the other's figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    machine, directory = Machine.detect(), installed("int8", get_settings())
    tokenizer = ChatTokenizer.from_directory(directory)
    documents = mixed_documents(tokenizer, options.jobs)
    cores = sorted(os.sched_getaffinity(0))[: options.workers]
    rate, figures = offline(directory, [document.token_job(tokenizer) for document in documents], cores)
    cpu = ", ".join(f"{item['cpu_s']:.1f}" for item in figures)
    rows = [("engine alone, jobs per second", f"{rate:.3f}"), ("engine alone, CPU-seconds by process", cpu)]
    sys.stderr.write(f"engine alone: {rate:.3f} jobs per second; now the fleet\n")
    try:
        with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as state:
            settings = {"TOKENMILL_MAX_MODEL_LEN": str(MAX_MODEL_LEN), "TOKENMILL_MAX_NUM_SEQS": str(MAX_NUM_SEQS)}
            with running_fleet(Path(state) / "state", options.workers, **settings) as fleet:
                rows += through_the_fleet(fleet, documents)
            purge(Path(state) / "state")
        share = float(rows[2][1]) / rate
        rows.append(("fleet's share of the engine alone", f"{share:.1%}"))
    finally:
        print(f"## {options.jobs} mixed jobs, {options.workers} workers\n")
        print(markdown(["figure", "value"], rows))
        print(f"\n{machine.markdown({})}")


if __name__ == "__main__":
    main()
