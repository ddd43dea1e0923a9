"""`python -m workers.tuning --cores 0-7`: what `tokenmill tune` runs. Results on stdout, progress on stderr."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared.errors import TokenmillError
from shared.model_registry import resolve
from shared.settings import Settings, get_settings
from workers.topology import allowed_cores, parse_cores
from workers.tuning.candidate import Measurement
from workers.tuning.settings_file import write_settings
from workers.tuning.tuner import SHORT, THOROUGH, Report, Tuner

SETTINGS_FILE = Path("tokenmill.toml")
EXIT_ERROR = 1


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tokenmill tune", description="Measure which settings suit this machine.")
    parser.add_argument("--model", help="installed model (default: TOKENMILL_MODEL)")
    parser.add_argument("--cores", help="cores to share out (default: all this process may use)")
    parser.add_argument("--quick", action="store_true", help="a first impression within half a minute")
    parser.add_argument("--write", action="store_true", help="write the best settings into ./tokenmill.toml")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def _tune(wanted: argparse.Namespace) -> None:
    settings, console = get_settings(), Console(stderr=True, highlight=False)
    version = resolve(wanted.model or settings.model, settings.model_dir)
    cores = parse_cores(wanted.cores) if wanted.cores else allowed_cores()
    plan, started = (SHORT if wanted.quick else THOROUGH), time.monotonic()

    def report(message: str) -> None:
        console.print(f"[{time.monotonic() - started:6.1f} s] {message}", markup=False, soft_wrap=True)

    report(f"{version.name} {version.version} on {len(cores)} cores; takes about {plan.seconds(len(cores)):.0f} s")
    tuner = Tuner(version, settings, cores, plan, report)
    winner = tuner.run()
    _show(tuner.measurements, winner, as_json=wanted.json)
    if wanted.write:
        write_settings(SETTINGS_FILE, winner.candidate.settings())
        report(f"written to {SETTINGS_FILE.absolute()}")
        _warn_of_overrides(winner, report)


def _warn_of_overrides(winner: Measurement, report: Report) -> None:
    effective = Settings()
    for name, value in winner.candidate.settings().items():
        if getattr(effective, name) != value:
            report(f"TOKENMILL_{name.upper()} in the environment overrides it with {getattr(effective, name)}")


def _show(measurements: Sequence[Measurement], winner: Measurement, *, as_json: bool) -> None:
    if as_json:
        rows = [found.public() for found in measurements]
        sys.stdout.write(json.dumps({"best": winner.public(), "measurements": rows}, indent=1) + "\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("workers", "threads", "slots", "step", "tokens/s", "per CPU-s", "memory", ""):
        table.add_column(column, justify="right")
    for found in measurements:
        tried = map(str, found.candidate.settings().values())
        speeds = (f"{found.tokens_per_second:.0f}", f"{found.tokens_per_cpu_second:.0f}")
        memory = f"{found.memory_bytes >> 20} MiB"
        table.add_row(*tried, *speeds, memory, "best" if found is winner else "")
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune; return the exit code."""
    try:
        _tune(_arguments(arguments))
    except TokenmillError as error:
        Console(stderr=True, highlight=False).print(f"error: {error.message}", markup=False, soft_wrap=True)
        return EXIT_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
