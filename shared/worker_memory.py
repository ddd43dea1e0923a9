"""What one worker takes and may take, in bytes: told by `doctor`, checked at start, watched while it runs."""

from dataclasses import dataclass

from shared.errors import ConfigurationError
from shared.memory import MIB, available_bytes, total_bytes
from shared.model_manifest import Manifest
from shared.settings import Settings

PROCESS_BYTES = 256 * MIB  # Python, its libraries, and the activations of a step
USABLE_SHARE = 0.9  # of the machine's memory, for all workers together
SLACK = 1.3  # what the reckoning does not know: arenas, fragments


def kv_bytes_per_token(manifest: Manifest, settings: Settings) -> int:
    """Return the bytes of all layers; int8 keeps a float32 scale per head beside the values."""
    if settings.kv_cache_dtype == "float32":
        return manifest.kv_bytes_per_token
    return 2 * manifest.layers * manifest.kv_heads * (manifest.head_size + 4)


@dataclass(frozen=True)
class WorkerMemory:
    """The largest a worker gets: every slot full, every cache full."""

    weights: int
    kv: int
    caches: int
    process: int = PROCESS_BYTES

    @classmethod
    def planned(cls, manifest: Manifest, settings: Settings) -> "WorkerMemory":
        """Reckon it for a model under `settings`."""
        tokens = settings.max_num_seqs * min(settings.max_model_len, manifest.context_length)
        caches = (settings.prefix_cache_mb + settings.kv_swap_mb) * MIB
        return cls(manifest.total_bytes, tokens * kv_bytes_per_token(manifest, settings), caches)

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.caches + self.process

    def __str__(self) -> str:
        """Write the parts in MiB."""
        parts = {"weights": self.weights, "KV cache": self.kv, "other caches": self.caches, "process": self.process}
        return f"{self.total >> 20} MiB (" + ", ".join(f"{name} {size >> 20}" for name, size in parts.items()) + ")"

    def limit(self, settings: Settings, workers: int) -> int:
        """Return the bytes above which a worker gives up its caches, then itself.

        Without the setting it is an equal share of the machine, but never less than the plan and some slack: a single
        worker started by hand may take more than a share.

        Raises:
            ConfigurationError: the plan does not fit the setting, or the memory that is free.
        """
        if settings.worker_memory_mb is not None:
            own = settings.worker_memory_mb * MIB
            self._check(own, "worker_memory_mb allows", "worker_memory_mb")
            return own
        self._check(available_bytes(), "the memory free is", "max_num_seqs")
        return max(round(USABLE_SHARE * total_bytes() / workers), round(SLACK * self.total))

    def _check(self, room: int, what: str, field: str) -> None:
        if self.total > room:
            setting = f"{'raise worker_memory_mb, or ' if field == 'worker_memory_mb' else ''}"
            raise ConfigurationError(
                f"a worker takes up to {self} and {what} {room >> 20} MiB; {setting}lower {self._largest}", field=field
            )

    @property
    def _largest(self) -> str:
        caches = self.caches > self.kv
        return "prefix_cache_mb or kv_swap_mb" if caches else "max_num_seqs or max_model_len"
