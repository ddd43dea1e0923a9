"""A model ready to serve: verified against its manifest, loaded, its tokenizer beside it."""

from dataclasses import dataclass

import psutil

from shared import model_registry
from shared.errors import ConfigurationError
from shared.model_registry import ModelVersion
from shared.settings import Settings
from shared.tokenizer import ChatTokenizer
from workers.engine import Engine, EngineConfig, ModelRunner
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.job_content import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """An engine that has not started yet, and the tokenizer of its model."""

    engine: Engine
    tokenizer: Tokenizer

    @classmethod
    def load(cls, version: ModelVersion, settings: Settings, *, threads: int) -> "LoadedModel":
        """Verify and load `version`.

        Raises:
            ModelCorruptError: a file differs from the manifest.
            ModelUnsupportedError: no runner serves it.
            ConfigurationError: it does not fit the memory.
        """
        model_registry.verify(version)
        tokenizer = ChatTokenizer.from_directory(version.path)
        runner = ContinuousRunner(
            version.path,
            RunnerConfig(
                max_num_seqs=settings.max_num_seqs,
                max_model_len=settings.max_model_len,
                intra_op_num_threads=threads,
            ),
        )
        return cls(Engine(runner, tokenizer.decode, _engine_config(runner, settings)), tokenizer)


def _engine_config(runner: ModelRunner, settings: Settings) -> EngineConfig:
    """Return the engine's limits; what is counted in MiB outside is counted in tokens of this model inside.

    Raises:
        ConfigurationError: the memory set aside for reuse and preemption is not free.
    """
    wanted, available = settings.prefix_cache_mb + settings.kv_swap_mb, psutil.virtual_memory().available >> 20
    if wanted > available:
        raise ConfigurationError(
            f"prefix_cache_mb and kv_swap_mb ask for {wanted} MiB and {available} MiB are free; lower one of them",
            field="prefix_cache_mb",
        )
    bytes_per_token = max(1, runner.kv_bytes // (runner.max_num_seqs * runner.max_model_len))
    return EngineConfig(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        prefix_cache_bytes=settings.prefix_cache_mb << 20,
        max_swap_tokens=(settings.kv_swap_mb << 20) // bytes_per_token,
    )
