"""Limits of the scheduler."""

from dataclasses import dataclass

from shared.errors import ConfigurationError

MAX_ADMISSION_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of one step and of what may be admitted.

    `max_num_batched_tokens` bounds prompt tokens and decode rows of a step together: rows that decode wait for at
    most that much prefill between two tokens, and a prompt waits for at most one decode of all rows between two
    chunks, so neither starves the other. `prefill_chunk_size` is fixed so that chunking never depends on the mix.
    `max_kv_tokens` bounds what the running sequences may come to hold, prompts and `max_tokens` together; None
    leaves it to the rows. `max_swap_tokens` bounds the KV of preempted sequences kept aside; 0 preempts no sequence
    that has begun to decode. `prefix_cache_bytes` bounds the KV of shared prompt prefixes; 0 reuses none.
    """

    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    prefill_chunk_size: int = 128
    admission_wait_s: float = 0.02
    max_kv_tokens: int | None = None
    max_swap_tokens: int = 4096
    max_preemptions: int = 2
    prefix_cache_bytes: int = 512 << 20
    grouping_window: int = 32

    def __post_init__(self) -> None:
        """Refuse limits that cannot work.

        Raises:
            ConfigurationError: a limit is out of range; names it.
        """
        for name in ("max_num_seqs", "max_num_batched_tokens", "prefill_chunk_size", "grouping_window"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1", field=name)
        for name in ("max_swap_tokens", "max_preemptions", "prefix_cache_bytes"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} must not be negative", field=name)
        if not 0 <= self.admission_wait_s <= MAX_ADMISSION_WAIT_S:
            raise ConfigurationError(
                f"admission_wait_s must be between 0 and {MAX_ADMISSION_WAIT_S}", field="admission_wait_s"
            )
