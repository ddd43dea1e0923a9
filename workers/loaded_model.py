"""A model ready to serve: verified against its manifest, loaded, its tokenizer beside it."""

from dataclasses import dataclass

from shared import model_registry
from shared.model_registry import ModelVersion
from shared.settings import Settings
from shared.tokenizer import ChatTokenizer
from workers.engine import Engine, EngineConfig
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
        config = EngineConfig(
            max_num_seqs=settings.max_num_seqs, max_num_batched_tokens=settings.max_num_batched_tokens
        )
        return cls(Engine(runner, tokenizer.decode, config), tokenizer)
