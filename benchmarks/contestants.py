"""Who takes part: our engine and its peers, each with the model file it reads."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import PEERS, peer_python
from shared.model_registry import versions_of
from shared.settings import DEFAULT_MODEL, Settings, get_settings

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One engine with one model. `kind` names its module in `sides/`, `label` its column."""

    label: str
    kind: str
    model: Path
    python: str = sys.executable
    quality_only: bool = False


def installed(precision: str, settings: Settings) -> Path:
    """Return the default model's directory in `precision`, importing it if need be."""
    directories = ["--model-dir", str(settings.model_dir), "--cache-dir", str(settings.cache_dir)]
    pull = [sys.executable, "-m", "workers.modelstore", "pull", "--precision", precision, *directories]
    subprocess.run(pull, cwd=ROOT, check=True, stdout=sys.stderr)
    found = [v.path for v in versions_of(DEFAULT_MODEL, settings.model_dir) if v.manifest.precision == precision]
    return found[-1]


def ours() -> list[Contestant]:
    """Return the engine in every precision, and onnxruntime-genai as its users run it; the curves are int8's."""
    settings = get_settings()
    int8, int4, fp32 = (installed(precision, settings) for precision in ("int8", "int4", "fp32"))
    return [
        Contestant("tokenmill int8", "engine", int8),
        Contestant("onnxruntime-genai int4", "genai", int4),
        Contestant("tokenmill int4", "engine", int4, quality_only=True),
        Contestant("tokenmill float32", "engine", fp32, quality_only=True),
    ]


def peers() -> list[Contestant]:
    """Return the peers whose packages install; those that do not are named on standard error with the reason."""
    settings = get_settings()
    gguf = next((settings.cache_dir / "models").glob("*.gguf"))
    found = [(peer, peer_python(peer, settings.cache_dir)) for peer in PEERS]
    return [Contestant(peer.label, peer.kind, gguf, str(python)) for peer, python in found if python]
