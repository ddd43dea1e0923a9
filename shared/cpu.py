"""What this machine's processor can do with int8."""

import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_DOT_PRODUCT = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})
_OF_INTEREST = frozenset(
    {"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16", "asimd", "i8mm", "sve", "bf16"}
)


@dataclass(frozen=True)
class Cpu:
    """Architecture, name and the kernel's feature flags of one processor."""

    architecture: str
    model: str
    flags: frozenset[str]

    @classmethod
    def detect(cls, cpuinfo: Path = Path("/proc/cpuinfo")) -> "Cpu":
        """Read the first processor of `cpuinfo`; without that file only the architecture is known."""
        fields: dict[str, str] = {}
        if cpuinfo.is_file():
            for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition(":")
                fields.setdefault(key.strip().lower(), value.strip())
        flags = fields.get("flags") or fields.get("features") or ""
        return cls(platform.machine(), fields.get("model name") or "unknown", frozenset(flags.split()))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The flags that decide which matrix kernels run, sorted."""
        return tuple(sorted(self.flags & (_DOT_PRODUCT | _OF_INTEREST)))

    @property
    def has_int8_dot_product(self) -> bool:
        """Whether four int8 products are summed in 32 bits (VNNI, AMX, ARM dot product)."""
        return bool(self.flags & _DOT_PRODUCT)
