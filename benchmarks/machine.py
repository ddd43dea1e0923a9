"""What figures were taken on: without it they mean nothing."""

import os
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from types import MappingProxyType

import psutil

from shared.cpu import Cpu


def _packages() -> str:
    return ", ".join(f"{name} {installed_version(name)}" for name in ("onnxruntime", "onnxruntime-genai"))


@dataclass(frozen=True, slots=True)
class Machine:
    """Processor, kernel, load at the start, and the command that was given."""

    cpu: str
    features: tuple[str, ...]
    cores: int
    memory_gib: int
    kernel: str
    python: str
    load: float
    command: str
    date: str

    @classmethod
    def detect(cls) -> "Machine":
        """Look at this machine and this process."""
        cpu = Cpu.detect()
        return cls(
            cpu=cpu.model,
            features=cpu.features,
            cores=len(os.sched_getaffinity(0)),
            memory_gib=psutil.virtual_memory().total >> 30,
            kernel=platform.release(),
            python=platform.python_version(),
            load=round(os.getloadavg()[0], 2),
            command=shlex.join(["python", *sys.orig_argv[1:]]),
            date=f"{datetime.now(UTC):%Y-%m-%d}",
        )

    def markdown(self, versions: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return the facts as a list, with what each side runs."""
        sides = "; ".join(f"{label}: {version}" for label, version in versions.items()) or _packages()
        return (
            f"- {self.cpu} ({', '.join(self.features)}), {self.cores} cores, {self.memory_gib} GiB,"
            f" Linux {self.kernel}, Python {self.python}; load {self.load} at the start\n"
            f"- {sides}\n- `{self.command}`, {self.date}"
        )
