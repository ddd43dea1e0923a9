"""`make bench`: import what is compared, then measure decode speed and how workers scale. Needs an idle machine."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from shared.model_registry import versions_of  # noqa: E402  # the repository is not installed where only this runs
from shared.settings import DEFAULT_MODEL, get_settings  # noqa: E402


def installed(precision: str) -> Path:
    """Return the default model's directory in `precision`, importing it if need be."""
    settings = get_settings()
    directories = ["--model-dir", str(settings.model_dir), "--cache-dir", str(settings.cache_dir)]
    pull = [sys.executable, "-m", "workers.modelstore", "pull", "--precision", precision, *directories]
    subprocess.run(pull, cwd=ROOT, check=True)
    found = [v.path for v in versions_of(DEFAULT_MODEL, settings.model_dir) if v.manifest.precision == precision]
    return found[-1]


def main() -> None:
    """Run the benchmarks one after another."""
    int8, int4 = installed("int8"), installed("int4")
    here = ROOT / "benchmarks"
    subprocess.run([sys.executable, here / "decode.py", int8, "--int4-dir", int4], cwd=ROOT, check=True)
    subprocess.run([sys.executable, here / "scaling.py"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
