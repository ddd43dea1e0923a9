"""Virtual environments of the peers, one each, in the cache directory: never in the tree, never in ours."""

import hashlib
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("peers.txt")
INSTALL_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer: the module in `sides/`, its column, and the package whose pins in peers.txt it needs."""

    kind: str
    label: str
    package: str


# llama.cpp is left out: its Python package has no wheel for Linux, and compiling it takes a quarter of an hour.
# CTranslate2 is left out: it reads neither GGUF nor ONNX, and the checkpoint it converts from is not on PyPI.
PEERS = (Peer("openvino", "OpenVINO GenAI", "openvino-genai"),)


def pins(package: str) -> list[str]:
    """Return the lines of peers.txt for `package`: those after the heading `# package` up to the next heading."""
    found, current = [], ""
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            current = line.removeprefix("# ").split(":")[0]
        elif line and current == package:
            found.append(line)
    return found


def peer_python(peer: Peer, cache_dir: Path) -> Path | None:
    """Return the interpreter of `peer`'s environment, building it at first; None when it does not install."""
    wanted = pins(peer.package)
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    directory = cache_dir / "peers" / f"{peer.kind}-{digest}"
    python, complete = directory / "bin" / "python", directory / "complete"
    if complete.is_file():
        return python
    sys.stderr.write(f"installing {' '.join(wanted)} into {directory} (once)\n")
    try:
        venv.create(directory, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *wanted]
        subprocess.run(install, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{peer.label} is left out: {error}\n")
        return None
    complete.touch()
    return python
