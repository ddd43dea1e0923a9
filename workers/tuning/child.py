"""`python -m workers.tuning.child DIRECTORY CORES ROWS [--quick]`: one worker's share of a measurement.

Says `{}` when the model is loaded; then for each line `[slots, batched tokens]` on stdin one line of figures.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from shared.errors import TokenmillError
from shared.settings import get_settings
from workers.topology import parse_cores, pin


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _serve(directory: Path, threads: int, rows: int, *, quick: bool) -> None:
    from workers.engine.continuous_runner import (  # noqa: PLC0415  # loads a runtime: after pinning
        ContinuousRunner,
        RunnerConfig,
    )
    from workers.tuning.workload import FULL, QUICK, measure  # noqa: PLC0415

    workload = QUICK if quick else FULL
    settings = get_settings()
    limits = RunnerConfig(
        rows,
        workload.longest,
        threads,
        kv_dtype=settings.kv_cache_dtype,
        packed_dir=settings.cache_dir / "packed",
    )
    runner = ContinuousRunner(directory, limits)
    runner.warm_up()
    _say({})
    for line in sys.stdin:
        slots, batched_tokens = json.loads(line)
        _say(asdict(measure(runner, workload, slots, batched_tokens)))
    runner.close()


def main(directory: str, cores: str, rows: str, *options: str) -> int:
    """Load, then measure on demand; return the exit code."""
    own = parse_cores(cores)
    pin(own)
    os.environ |= {"ORT_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": str(len(own))}
    try:
        _serve(Path(directory), len(own), int(rows), quick="--quick" in options)
    except TokenmillError as error:
        _say({"error": error.message})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
