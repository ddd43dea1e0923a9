"""The benchmark suite: our engine beside its peers, each a process of one thread pinned to the same core.

usage: python -m benchmarks.run [--peers] [--quick] [--suites decode,mixed,long,prefix,quality,prefill]

Sides take turns measurement by measurement, so that a change of clock or a busy neighbour meets all of them. Rates are
per CPU-second over all threads of a side: a shared machine takes turns. Curves are medians of `--runs` runs; long
contexts and workloads run once. Every answer is appended to a file in benchmarks/results/ as soon as it is there; a
measurement that fails or no longer fits `--budget` is named below its table. Tables are Markdown, on standard output;
progress on standard error. The targets' workload: --peers --suites mixed --mixed-jobs 200 --slots 16,32,64 --budget 60
"""

import argparse
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.campaign import Campaign
from benchmarks.contestants import Contestant, ours, peers
from benchmarks.machine import Machine
from benchmarks.plan import OWN, QUICK, SUITES, Measurement, Scale, plan
from benchmarks.result_file import ResultFile
from benchmarks.side_process import SideProcess
from benchmarks.tables import section
from shared.tokenizer import ChatTokenizer

TEXT = Path(__file__).parents[1] / "tests" / "data" / "perplexity_text.txt"
QUICK_TEXT_TOKENS = 40
MINUTE_S = 60


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="install the peers and measure them too")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, not how fast")
    parser.add_argument("--suites", default="", help=f"comma-separated, of {', '.join(SUITES)}")
    parser.add_argument("--runs", type=int, default=2, help="of the decode and prefill curves")
    parser.add_argument("--mixed-jobs", type=int, help="jobs of the mixed workload (the target is stated for 200)")
    parser.add_argument("--slots", help="slots of the mixed workload, comma-separated")
    parser.add_argument("--sides", help="only those whose label holds one of these words, comma-separated")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--budget", type=float, help="minutes after which nothing new is begun (10; with peers 25)")
    return parser.parse_args()


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else Scale() if options.peers else OWN
    if options.mixed_jobs:
        scale = replace(scale, mixed_jobs=options.mixed_jobs)
    if options.slots:
        scale = replace(scale, slots=tuple(int(number) for number in options.slots.split(",")))
    return scale


def _contestants(options: argparse.Namespace) -> list[Contestant]:
    everyone = [*ours(), *(peers() if options.peers else [])]
    words = options.sides.split(",") if options.sides else [""]
    return [side for side in everyone if any(word in side.label for word in words)]


def _text(sides: list[Contestant], *, quick: bool) -> list[int]:
    """Return the ids of the held-out text; every side has the same vocabulary."""
    directory = next((side.model for side in sides if side.model.is_dir()), None) or ours()[0].model
    ids = ChatTokenizer.from_directory(directory).encode_text(TEXT.read_text(encoding="utf-8"))
    return list(ids[: QUICK_TEXT_TOKENS if quick else None])


def _estimate_s(groups: list[list[Measurement]], runs: int) -> float:
    return sum(item.estimate_s * (runs if item.repeats else 1) for group in groups for item in group)


def main() -> None:
    """Plan, say how long it takes, measure, print."""
    options = _arguments()
    sides, runs = _contestants(options), 1 if options.quick else options.runs
    suites = options.suites.split(",") if options.suites else list(SUITES)
    groups = plan(sides, suites, _scale(options), _text(sides, quick=options.quick))
    budget_s = (options.budget or (25 if options.peers else 10)) * MINUTE_S
    estimate = _estimate_s(groups, runs)
    sys.stderr.write(f"about {estimate / MINUTE_S:.0f} minutes, at most {budget_s / MINUTE_S:.0f}\n")
    machine = Machine.detect()
    processes = {side.label: SideProcess(side.kind, side.model, options.core, side.python) for side in sides}
    campaign = Campaign(processes, ResultFile("suite", asdict(machine)), budget_s)
    try:
        for group in groups:
            print(section(campaign.run(group, runs)), end="\n\n", flush=True)
    finally:
        versions = {label: process.version for label, process in processes.items()}
        print(f"## Taken on\n\n{machine.markdown(versions)}\n- every answer: {campaign.results.path}")
        for process in processes.values():
            process.close()


if __name__ == "__main__":
    main()
