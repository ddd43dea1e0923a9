"""A model ready to serve: verified against its manifest, loaded, its tokenizer beside it."""

from dataclasses import dataclass
from functools import partial

import structlog

from shared import model_registry
from shared.errors import ConfigurationError, ModelUnsupportedError
from shared.memory import available_bytes
from shared.model_registry import ModelVersion
from shared.settings import Settings
from shared.tokenizer import ChatTokenizer
from workers.engine import Engine, EngineConfig, ModelRunner
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.engine.detokenizer import Decode
from workers.engine.genai_engine import GenaiConfig, GenaiEngine
from workers.engine.router import Router
from workers.engine.serving import Serving
from workers.engine.sleeping_runner import SleepingRunner
from workers.engine.structured import Vocabulary
from workers.job_content import Tokenizer

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """An engine that has not started yet, and the tokenizer and the vocabulary of its model."""

    engine: Serving
    tokenizer: Tokenizer
    vocabulary: Vocabulary | None = None

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
        genai_config = GenaiConfig(settings.max_model_len, threads, settings.genai_idle.total_seconds())
        genai = GenaiEngine(version.path, tokenizer.decode, genai_config)
        engine = Router(genai, _continuous(version, settings, threads, tokenizer.decode))
        vocabulary = Vocabulary.from_directory(version.path, engine.runner.vocab_size, engine.runner.eos_token_ids)
        return cls(engine, tokenizer, vocabulary)


def _continuous(version: ModelVersion, settings: Settings, threads: int, decode: Decode) -> Engine | None:
    """Return the engine that batches, or None when only onnxruntime-genai can serve the model."""
    limits = RunnerConfig(
        max_num_seqs=settings.max_num_seqs,
        max_model_len=settings.max_model_len,
        intra_op_num_threads=threads,
        kv_dtype=settings.kv_cache_dtype,
        packed_dir=settings.cache_dir / "packed",
    )
    try:
        runner = SleepingRunner(partial(ContinuousRunner, version.path, limits))
    except ModelUnsupportedError as refusal:
        # The reason is about the model's files; as a field of its own it would be dropped.
        event = f"onnxruntime-genai serves the model, one job at a time: {refusal.message}"
        log.warning(event, model=version.name)
        return None
    return Engine(runner, decode, _engine_config(runner, settings))


def _engine_config(runner: ModelRunner, settings: Settings) -> EngineConfig:
    """Return the engine's limits; what is counted in MiB outside is counted in tokens of this model inside.

    Raises:
        ConfigurationError: the memory set aside for reuse and preemption is not free.
    """
    wanted, available = settings.prefix_cache_mb + settings.kv_swap_mb, available_bytes() >> 20
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
