"""What is tried, and what came out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_THREADS = (1, 2, 4, 8, 16, 32, 64, 128)
_AS_GOOD = 0.97  # share of the best speed that counts as equal: between two runs it differs by as much


@dataclass(frozen=True)
class Candidate:
    """Settings of a whole machine: `threads` per worker, `slots` per worker, tokens per step."""

    workers: int
    threads: int
    slots: int
    batched_tokens: int

    def core_sets(self, cores: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the cores of each worker."""
        width = self.threads
        return [tuple(cores[n * width : (n + 1) * width]) for n in range(self.workers)]

    def settings(self) -> dict[str, int]:
        """Return it under the names of the settings."""
        return {
            "workers": self.workers,
            "threads_per_worker": self.threads,
            "max_num_seqs": self.slots,
            "max_num_batched_tokens": self.batched_tokens,
        }


@dataclass(frozen=True)
class Measurement:
    """Tokens are those of prompts and outputs together; memory is what all workers may come to take."""

    candidate: Candidate
    tokens_per_second: float
    tokens_per_cpu_second: float
    memory_bytes: int

    def public(self) -> dict[str, float]:
        """Return it as figures for scripts."""
        return {
            **self.candidate.settings(),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "tokens_per_cpu_second": round(self.tokens_per_cpu_second, 1),
            "memory_mb": self.memory_bytes >> 20,
        }


def topologies(cores: int, slots: int, batched_tokens: int) -> list[Candidate]:
    """Return the ways to share `cores` evenly among workers, most workers first."""
    widths = sorted({*(width for width in _THREADS if width < cores and cores % width == 0), cores})
    return [Candidate(cores // width, width, slots, batched_tokens) for width in widths]


def with_slots(base: Candidate, slots: Iterable[int]) -> list[Candidate]:
    """Return `base` with other numbers of slots."""
    return [replace(base, slots=count) for count in slots if count != base.slots]


def with_batched_tokens(base: Candidate, sizes: Iterable[int]) -> list[Candidate]:
    """Return `base` with other step sizes."""
    return [replace(base, batched_tokens=size) for size in sizes if size != base.batched_tokens]


def best(measurements: Sequence[Measurement]) -> Measurement:
    """Return the fastest; of those about as fast, the one that takes the least memory."""
    top = max(found.tokens_per_second for found in measurements)
    good = [found for found in measurements if found.tokens_per_second >= _AS_GOOD * top]
    return min(good, key=lambda found: (found.memory_bytes, -found.tokens_per_second))
