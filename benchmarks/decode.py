"""Decode speed of the engine in tokens per CPU-second, beside onnxruntime-genai one job at a time.

usage: python benchmarks/decode.py MODEL_DIR [--int4-dir DIR]

Both sides are processes pinned to the same core with one thread. Their runs alternate, so that a change of clock or
a busy neighbour meets both. CPU-seconds rather than wall seconds: a shared machine takes turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[1]))

ROWS = (1, 8, 16, 32)
WARM_UP_STEPS = 2
# About the same amount of work at every batch size.
TOKENS_PER_RUN = {1: 48, 8: 128, 16: 192, 32: 320}
PROMPT_TOKENS = 37
SLOT_TOKENS = 256


class Side:
    """One process that measures on demand: a line with a number of rows in, a line with tokens per CPU-second out."""

    def __init__(self, kind: str, directory: Path, core: int) -> None:
        """Start it; it loads its model at once."""
        command = [sys.executable, __file__, str(directory), "--side", kind, "--core", str(core)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, rows: int) -> float:
        """Return decoded tokens per CPU-second at `rows` rows."""
        stdin, stdout = self._pipes()
        stdin.write(f"{rows}\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise SystemExit("a side of the benchmark ended; its error stands above")
        return float(line)

    def close(self) -> None:
        """End the process."""
        for pipe in self._pipes():
            pipe.close()
        self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process was started without pipes")
        return stdin, stdout


def engine_side(directory: Path) -> Callable[[int], float]:
    """Return a measurement of whole engine steps: scheduling, computing, sampling."""
    from shared.sampling import SamplingParams  # noqa: PLC0415  # after pinning
    from workers.engine import Engine, EngineConfig, GenerationRequest  # noqa: PLC0415
    from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig  # noqa: PLC0415

    runner = ContinuousRunner(directory, RunnerConfig(max(ROWS), SLOT_TOKENS, 1))
    runner.warm_up()
    # One step prefills all rows, so that the steps after it only decode.
    config = EngineConfig(max(ROWS), max(ROWS) * (PROMPT_TOKENS + 1), admission_wait_s=0)

    def measure(rows: int) -> float:
        engine, steps = Engine(runner, lambda _: "", config), TOKENS_PER_RUN[rows] // rows
        params = SamplingParams(max_tokens=steps + WARM_UP_STEPS + 1, ignore_eos=True)
        for index in range(rows):
            prompt = [100 + index + position for position in range(PROMPT_TOKENS)]
            engine.submit(GenerationRequest(str(index), prompt, params))
        for _ in range(1 + WARM_UP_STEPS):
            engine.step()
        start = time.process_time()
        for _ in range(steps):
            engine.step()
        return rows * steps / (time.process_time() - start)

    return measure


def genai_side(directory: Path) -> Callable[[int], float]:
    """Return a measurement of onnxruntime-genai's generator; a number of rows means as many jobs after another."""
    import onnxruntime_genai as og  # noqa: PLC0415  # after pinning

    config = og.Config(str(directory))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": 1}}}}))
    model = og.Model(config)

    def measure(rows: int) -> float:
        tokens = TOKENS_PER_RUN[rows]
        length = PROMPT_TOKENS + WARM_UP_STEPS + tokens
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = og.Generator(model, params)
        generator.append_tokens(list(range(100, 100 + PROMPT_TOKENS)))
        for _ in range(WARM_UP_STEPS):
            generator.generate_next_token()
        start = time.process_time()
        for _ in range(tokens):
            generator.generate_next_token()
        return tokens / (time.process_time() - start)

    return measure


def serve(kind: str, directory: Path, core: int) -> None:
    """Answer measurements until the other end closes."""
    os.sched_setaffinity(0, {core})
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    measure = {"engine": engine_side, "genai": genai_side}[kind](directory)
    for line in sys.stdin:
        print(measure(int(line)), flush=True)


@contextmanager
def sides(arguments: argparse.Namespace) -> Iterator[tuple[Side, Side | None]]:
    """Start both sides, or the engine alone."""
    engine = Side("engine", arguments.model_dir, arguments.core)
    genai = Side("genai", arguments.int4_dir, arguments.core) if arguments.int4_dir else None
    try:
        yield engine, genai
    finally:
        engine.close()
        if genai is not None:
            genai.close()


def compare(arguments: argparse.Namespace) -> tuple[dict[int, float], float | None]:
    """Return median tokens per CPU-second of the engine by rows, and of onnxruntime-genai for one job at a time."""
    engine_runs: dict[int, list[float]] = {rows: [] for rows in ROWS}
    genai_runs: list[float] = []
    with sides(arguments) as (engine, genai):
        for _ in range(arguments.runs):
            for rows in ROWS:
                engine_runs[rows].append(engine.measure(rows))
                if genai is not None:
                    genai_runs.append(genai.measure(1))
    medians = {rows: statistics.median(values) for rows, values in engine_runs.items()}
    return medians, statistics.median(genai_runs) if genai_runs else None


def quality(directory: Path) -> str:
    """Return the perplexity from the manifest: speed without it says little."""
    from shared.model_manifest import MANIFEST_FILE, read_manifest  # noqa: PLC0415  # not needed by the sides

    if not (directory / MANIFEST_FILE).is_file():
        return "perplexity: not measured (no manifest)"
    found = read_manifest(directory).quality
    if found is None:
        return "perplexity: not measured"
    beside = f", float32 {found.perplexity_fp32:.3f}" if found.perplexity_fp32 else ""
    return f"perplexity: {found.perplexity:.3f}{beside}"


def machine(core: int) -> str:
    """Return what the figures were taken on."""
    from importlib.metadata import version  # noqa: PLC0415  # not needed by the sides

    from shared.cpu import Cpu  # noqa: PLC0415

    cpu = Cpu.detect()
    packages = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "onnxruntime-genai"))
    load = os.getloadavg()[0]
    return f"{cpu.model} ({', '.join(cpu.features)}), core {core}, 1 thread, load {load:.1f}; {packages}"


def report(arguments: argparse.Namespace) -> None:
    """Measure and print the table."""
    medians, alone = compare(arguments)
    print(machine(arguments.core))
    print(f"model: {arguments.model_dir.name}; {quality(arguments.model_dir)}")
    print(f"decode after {PROMPT_TOKENS} prompt tokens, tokens per CPU-second, median of {arguments.runs} runs\n")
    print("| rows | tokenmill | onnxruntime-genai, one at a time | ratio |\n|---|---|---|---|")
    for rows, rate in medians.items():
        beside = f"{alone:.1f} | {rate / alone:.2f}" if alone else "- | -"
        print(f"| {rows} | {rate:.1f} | {beside} |")


def main() -> None:
    """Read the arguments; measure, or serve as one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--int4-dir", type=Path, help="the same model as onnxruntime-genai's users run it")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--side", choices=("engine", "genai"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        serve(arguments.side, arguments.model_dir, arguments.core)
    else:
        report(arguments)


if __name__ == "__main__":
    main()
