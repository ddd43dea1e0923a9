"""Jobs through the whole fleet (API to results) with one worker and with two, each pinned to a core of its own.

usage: python -m benchmarks.scaling [--jobs 192] [--runs 3]

Runs alternate between the two fleets' sizes. The figure is jobs per second from the first start to the last end, by
the database's clock; API, servers and maintenance run on the same cores as the workers. 192 jobs fill 32 slots three
times over with two workers and six times with one: other numbers measure the tail.
"""

import argparse
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.fleet import purge, running_fleet
from benchmarks.machine import Machine
from benchmarks.result_file import ResultFile

PROMPT = "Summarise: the pump failed twice because a seal was worn. The seal was replaced, report {number}."
SAMPLING = {"max_tokens": 48, "ignore_eos": True}
WORKERS = (1, 2)


def jobs_per_second(state_dir: Path, workers: int, jobs: int) -> float:
    """Start the fleet with `workers` workers, run `jobs` jobs, stop it."""
    bodies = [{"prompt": PROMPT.format(number=number), "sampling": SAMPLING} for number in range(jobs)]
    with running_fleet(state_dir, workers, TOKENMILL_MAX_MODEL_LEN="512") as fleet:
        ids = fleet.submit(bodies)
        fleet.wait(ids)
        return jobs / fleet.compute_s(ids)


def main() -> None:
    """Print jobs per second of both sizes and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=192)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    figures: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as directory:
        state_dir = Path(directory) / "state"
        for _ in range(options.runs):
            for workers, rates in figures.items():
                rates.append(jobs_per_second(state_dir, workers, options.jobs))
        purge(state_dir)
    medians = {workers: statistics.median(rates) for workers, rates in figures.items()}
    ResultFile("scaling", asdict(Machine.detect())).append({"jobs": options.jobs, "jobs_per_second": figures})
    print(f"## Two workers: {options.jobs} jobs of 48 tokens through the whole fleet, median of {options.runs} runs\n")
    print("| workers | jobs per second | ratio | runs |\n|---|---|---|---|")
    for workers, rates in figures.items():
        runs = " ".join(f"{rate:.2f}" for rate in rates)
        print(f"| {workers} | {medians[workers]:.2f} | {medians[workers] / medians[WORKERS[0]]:.2f} | {runs} |")


if __name__ == "__main__":
    main()
