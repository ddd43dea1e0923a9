"""The default runner: tokens of any rows in one pass, over our own KV rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigurationError, ModelUnsupportedError
from shared.memory import available_bytes
from workers.engine.decoder import Decoder
from workers.engine.decoder_config import DecoderConfig
from workers.engine.kv_cache import KvCache, KvDtype
from workers.engine.model_runner import KvBlock, Logits, RowTokens

WARM_UP_GENERATIONS = 2
WARM_UP_PROMPT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """Rows, tokens per row (capped at the model's context), threads (the size of the worker's core set), KV type.

    With `packed_dir`, workers of one host share the weights through files there.
    """

    max_num_seqs: int = 16
    max_model_len: int = 2048
    intra_op_num_threads: int = 1
    kv_dtype: KvDtype = "int8"
    packed_dir: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigurationError: a figure is below 1; names it.
        """
        for name in ("max_num_seqs", "max_model_len", "intra_op_num_threads"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1", field=name)


def _check_memory(needed: int, slots: int, max_len: int) -> None:
    available = available_bytes()
    if needed > available:
        raise ConfigurationError(
            f"the KV cache of {slots} sequences x {max_len} tokens takes {needed >> 20} MiB and {available >> 20} MiB"
            " are free; lower max_num_seqs or max_model_len",
            field="max_num_seqs",
        )


class ContinuousRunner:
    """A `ModelRunner` over onnxruntime and compiled attention."""

    def __init__(self, directory: Path, config: RunnerConfig | None = None) -> None:
        """Load the onnxruntime-genai model `directory` and allocate the KV rows.

        Raises:
            ModelUnsupportedError: the graph is not a plain decoder; says why.
            ConfigurationError: the KV cache does not fit the free memory.
        """
        config = config or RunnerConfig()
        self._config = decoder = DecoderConfig.read(directory)
        max_len = min(config.max_model_len, decoder.context_length)
        self._decoder = Decoder(decoder, config.intra_op_num_threads, config.packed_dir)
        needed = decoder.kv_shape.total_bytes(config.kv_dtype, config.max_num_seqs, max_len)
        _check_memory(needed, config.max_num_seqs, max_len)
        self._kv = KvCache(decoder.kv_shape, config.kv_dtype, config.max_num_seqs, max_len)

    @property
    def max_num_seqs(self) -> int:
        """Rows of the KV cache."""
        return self._kv.slots

    @property
    def max_model_len(self) -> int:
        """Tokens a row holds."""
        return self._kv.max_len

    @property
    def context_length(self) -> int:
        """Tokens the model was trained to see."""
        return self._config.context_length

    @property
    def vocab_size(self) -> int:
        """Width of logits."""
        return self._config.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a generation."""
        return self._config.eos_token_ids

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache."""
        return self._kv.nbytes

    def execute(self, work: Sequence[RowTokens]) -> Logits:
        """Append tokens to rows in one pass; return the last token's logits [n, vocab] of those that want them."""
        sizes = [len(item.token_ids) for item in work]
        ids = np.concatenate([np.asarray(item.token_ids, np.int64) for item in work])
        rows = np.repeat(np.asarray([item.row for item in work], np.int64), sizes)
        ends = np.cumsum(sizes)
        within = np.arange(ids.size) - np.repeat(ends - sizes, sizes)
        positions = np.repeat(np.asarray([item.position for item in work], np.int64), sizes) + within
        self._check(ids, positions)
        last = ends[[item.wants_logits for item in work]] - 1
        return self._decoder.run(self._kv, ids, rows, positions, last=last)

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of row `source` to row `target`."""
        self._kv.move(source, target, tokens)

    def save_kv(self, row: int, start: int, stop: int) -> KvBlock:
        """Return a copy of the KV of tokens `start` to `stop` of `row`."""
        return KvBlock(stop - start, self._kv.save(row, start, stop))

    def load_kv(self, row: int, start: int, block: KvBlock) -> None:
        """Write `block` to `row` from token `start` on."""
        self._kv.load(row, start, block.arrays)

    def warm_up(self) -> None:
        """Run two generations over all rows; the first process of a machine compiles the attention kernels here.

        Raises:
            ModelUnsupportedError: the graph does not run.
        """
        rows, tokens = self.max_num_seqs, min(WARM_UP_PROMPT_TOKENS, self.max_model_len - 1)
        try:
            for _ in range(WARM_UP_GENERATIONS):
                self.execute([RowTokens(0, [0] * tokens, 0)])
                self.execute([RowTokens(row, [0], tokens) for row in range(rows)])
        except Exception as error:  # whatever the runtime raises here, the model cannot be served
            raise ModelUnsupportedError(f"{self._config.path.name} does not run: {error}") from error

    def close(self) -> None:
        """Free the model and the KV cache."""
        self._decoder.close()

    def _check(self, ids: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        # The kernels look at addresses, not at bounds.
        if (
            ids.min() < 0
            or ids.max() >= self.vocab_size
            or positions.min() < 0
            or positions.max() >= self.max_model_len
        ):
            raise ValueError("token ids or positions out of range")
