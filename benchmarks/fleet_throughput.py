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
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.contestants import installed
from benchmarks.documents import Document, mixed_documents
from benchmarks.fleet import RunningFleet, purge, running_fleet
from benchmarks.machine import Machine
from benchmarks.process_times import ThreadTimes, by_role, engine_and_others, thread_times
from benchmarks.result_file import ResultFile
from benchmarks.side_process import SideProcess
from benchmarks.sides.measurement import Figures
from benchmarks.tables import markdown
from shared.settings import get_settings
from shared.tokenizer import ChatTokenizer

MAX_MODEL_LEN = 1024
MAX_NUM_SEQS = 32
WARM_UP_JOBS = 4
ENGINE_TIMEOUT_S = 3600
JOBS_PER_CORE_MINUTE = 50  # for the estimate only


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What the fleet did: wall seconds, CPU seconds by role, and per worker its engine thread and all others."""

    jobs: int
    compute_s: float
    submit_s: float
    wall_s: float
    cpu_s: dict[str, float]
    threads: tuple[tuple[ThreadTimes, float], ...]

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second from the first start to the last end."""
        return self.jobs / self.compute_s

    def rows(self) -> list[tuple[str, str]]:
        """Return rows of the report."""
        cpu = ", ".join(f"{role} {value:.1f}" for role, value in self.cpu_s.items())
        return [
            ("fleet, jobs per second", f"{self.jobs_per_s:.3f}"),
            ("fleet, first submission to last result, s", f"{self.wall_s:.1f} (submitting {self.submit_s:.1f})"),
            ("fleet, CPU-seconds", cpu),
            *(self._thread_row(number, *times) for number, times in enumerate(self.threads)),
        ]

    def _thread_row(self, number: int, engine: ThreadTimes, others_s: float) -> tuple[str, str]:
        ran, wanted = engine.ran_s / self.compute_s, (engine.ran_s + engine.waited_s) / self.compute_s
        text = f"ran {ran:.1%} of the time, ran or waited for its core {wanted:.1%}; other threads {others_s:.1f} CPU-s"
        return f"worker {number}, engine thread", text


def through_the_fleet(fleet: RunningFleet, documents: Sequence[Document]) -> FleetRun:
    """Run the documents through a fleet, warmed up by a few of them."""
    fleet.wait(fleet.submit([document.body() for document in documents[:WARM_UP_JOBS]]))
    workers = [process["pid"] for process in fleet.processes if process["role"] == "worker"]
    seconds, threads, start = by_role(fleet.processes), [thread_times(pid) for pid in workers], time.monotonic()
    ids = fleet.submit([document.body() for document in documents])
    submitted = time.monotonic() - start
    fleet.wait(ids)
    return FleetRun(
        jobs=len(ids),
        compute_s=fleet.compute_s(ids),
        submit_s=submitted,
        wall_s=time.monotonic() - start,
        cpu_s={role: value - seconds[role] for role, value in by_role(fleet.processes).items()},
        threads=tuple(
            engine_and_others(before, thread_times(pid)) for pid, before in zip(workers, threads, strict=True)
        ),
    )


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


def fleet_run(documents: Sequence[Document], workers: int) -> FleetRun:
    """Start a fleet, run the documents, delete it."""
    settings = {"TOKENMILL_MAX_MODEL_LEN": str(MAX_MODEL_LEN), "TOKENMILL_MAX_NUM_SEQS": str(MAX_NUM_SEQS)}
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as directory:
        state_dir = Path(directory) / "state"
        with running_fleet(state_dir, workers, **settings) as fleet:
            run = through_the_fleet(fleet, documents)
        purge(state_dir)
    return run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main() -> None:
    """Measure both ways and print the table; a fleet that fails leaves the engine's figures."""
    options, machine = _arguments(), Machine.detect()
    directory = installed("int8", get_settings())
    tokenizer = ChatTokenizer.from_directory(directory)
    documents = mixed_documents(tokenizer, options.jobs)
    results = ResultFile("fleet", asdict(machine))
    minutes = 2 * options.jobs / options.workers / JOBS_PER_CORE_MINUTE
    sys.stderr.write(f"about {minutes:.0f} minutes: first the engine alone, then the fleet\n")
    cores = sorted(os.sched_getaffinity(0))[: options.workers]
    rate, figures = offline(directory, [document.token_job(tokenizer) for document in documents], cores)
    results.append({"engine": figures, "jobs": options.jobs, "jobs_per_second": rate})
    cpu_s = [item["cpu_s"] for item in figures]
    rows = [
        ("engine alone, jobs per second", f"{rate:.3f}"),
        ("engine alone, CPU-seconds by process", ", ".join(f"{seconds:.1f}" for seconds in cpu_s)),
    ]
    try:
        run = fleet_run(documents, options.workers)
        results.append({"fleet": asdict(run)})
        rows += [
            *run.rows(),
            ("fleet's share of the engine alone, jobs per second", f"{run.jobs_per_s / rate:.1%}"),
            ("the engine's CPU-seconds alone, of all the fleet's", f"{sum(cpu_s) / sum(run.cpu_s.values()):.1%}"),
        ]
    finally:
        print(f"## {options.jobs} mixed jobs, {options.workers} workers\n\n{markdown(['figure', 'value'], rows)}")
        print(f"\n{machine.markdown()}\n- every answer: {results.path}")


if __name__ == "__main__":
    main()
