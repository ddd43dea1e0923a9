"""Memory of one worker and of two: how much a further worker costs.

usage: python -m benchmarks.memory [--jobs 16]

PSS counts a page shared by n processes 1/n times, so the sum over workers is what they take together. *Private* is what
one worker alone would give back. Source: /proc/PID/smaps_rollup. Read after some jobs, when every page is touched.
"""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.fleet import RunningFleet, purge, running_fleet
from benchmarks.machine import Machine
from benchmarks.result_file import ResultFile
from benchmarks.tables import markdown

WORKERS = (1, 2)
KIB_PER_MIB = 1024
MAX_TOKENS = 16


def smaps_rollup(text: str) -> dict[str, int]:
    """Return the KiB of every field of a smaps_rollup file."""
    lines = (line.split() for line in text.splitlines()[1:])
    return {name.rstrip(":"): int(kib) for name, kib, _ in lines}


def worker_memory(fleet: RunningFleet) -> list[dict[str, int]]:
    """Return the fields of every worker."""
    pids = [process["pid"] for process in fleet.processes if process["role"] == "worker"]
    return [smaps_rollup(Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")) for pid in pids]


def measure(state_dir: Path, workers: int, jobs: int) -> list[dict[str, int]]:
    """Return the memory of each worker after `jobs` jobs."""
    sampling = {"max_tokens": MAX_TOKENS, "ignore_eos": True}
    with running_fleet(state_dir, workers) as fleet:
        ids = fleet.submit([{"prompt": f"Document {number}.", "sampling": sampling} for number in range(jobs)])
        fleet.wait(ids)
        return worker_memory(fleet)


def row(workers: int, memory: list[dict[str, int]]) -> list[str]:
    """Return the row of a table: sums over the workers in MiB, then the private memory of each."""
    pss = sum(fields["Pss"] for fields in memory) // KIB_PER_MIB
    shared = sum(fields["Shared_Clean"] + fields["Shared_Dirty"] for fields in memory) // KIB_PER_MIB // len(memory)
    private = [(fields["Private_Clean"] + fields["Private_Dirty"]) // KIB_PER_MIB for fields in memory]
    return [str(workers), str(pss), str(shared), " / ".join(map(str, private))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=16)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as state:
        rows = [row(workers, measure(Path(state) / "state", workers, jobs)) for workers in WORKERS]
        purge(Path(state) / "state")
    ResultFile("memory", asdict(Machine.detect())).append({"rows": rows})
    print("## Memory of the workers, MiB\n")
    print(markdown(["workers", "PSS of all", "shared, each", "private, each"], rows))
    print(f"\n{Machine.detect().markdown()}")


if __name__ == "__main__":
    main()
