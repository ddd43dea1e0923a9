"""The default runner: a plain onnxruntime session over our own KV rows, so rows of any length decode together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from shared.errors import ConfigurationError, ModelUnsupportedError
from workers.engine.decoder_config import DecoderConfig
from workers.engine.kv_cache import KvCache
from workers.engine.model_runner import KvBlock, Logits
from workers.engine.runtime import onnxruntime
from workers.engine.step_inputs import Int64Array, StepInputs

WARM_UP_GENERATIONS = 2
WARM_UP_PROMPT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """Rows, tokens per row (capped at the model's context) and threads: the size of the worker's core set."""

    max_num_seqs: int = 16
    max_model_len: int = 2048
    intra_op_num_threads: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigurationError: a figure is below 1; names it.
        """
        for name in ("max_num_seqs", "max_model_len", "intra_op_num_threads"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1", field=name)


def _open_session(path: Path, threads: int) -> Any:  # noqa: ANN401  # onnxruntime ships no types
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Mask lengths differ at nearly every step; a remembered memory plan per shape would only grow.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no base of their own
        raise ModelUnsupportedError(f"onnxruntime cannot load {path.name}: {type(error).__name__}: {error}") from error


def _check_graph(session: Any, config: DecoderConfig) -> None:  # noqa: ANN401  # onnxruntime ships no types
    inputs = {node.name: node for node in session.get_inputs()}
    unknown, missing = inputs.keys() - config.graph_inputs, config.graph_inputs - inputs.keys()
    if unknown or missing:
        raise ModelUnsupportedError(
            "the graph's inputs are not those of a plain decoder"
            f" (not expected: {sorted(unknown)}, missing: {sorted(missing)}); use the genai runner for it"
        )
    shape = config.kv_shape
    for name in config.past_names:
        node = inputs[name]
        if node.type != "tensor(float)" or (node.shape[1], node.shape[3]) != (shape.kv_heads, shape.head_size):
            raise ModelUnsupportedError(
                f"KV input {name} is {node.type} {node.shape}; this runner serves float32 KV"
                f" with {shape.kv_heads} heads of {shape.head_size}"
            )
    logits = next((node for node in session.get_outputs() if node.name == config.logits), None)
    if logits is None or logits.type != "tensor(float)":
        raise ModelUnsupportedError(f"the graph has no float32 output {config.logits}")


def _check_memory(needed: int, slots: int, max_len: int) -> None:
    available = psutil.virtual_memory().available
    if needed > available:
        raise ConfigurationError(
            f"the KV cache of {slots} sequences x {max_len} tokens takes {needed >> 20} MiB and {available >> 20} MiB"
            " are free; lower max_num_seqs or max_model_len",
            field="max_num_seqs",
        )


class ContinuousRunner:
    """A `ModelRunner` over `onnxruntime.InferenceSession`. Past and present KV of a row are the same memory."""

    def __init__(self, directory: Path, config: RunnerConfig | None = None) -> None:
        """Load the onnxruntime-genai model `directory` and allocate the KV rows.

        Raises:
            ModelUnsupportedError: the graph is not a plain decoder with float32 KV; says why.
            ConfigurationError: the KV cache does not fit the free memory.
        """
        config = config or RunnerConfig()
        self._decoder = decoder = DecoderConfig.read(directory)
        max_len = min(config.max_model_len, decoder.context_length)
        self._session = _open_session(decoder.path, config.intra_op_num_threads)
        _check_graph(self._session, decoder)
        _check_memory(decoder.kv_shape.total_bytes(config.max_num_seqs, max_len), config.max_num_seqs, max_len)
        self._kv = KvCache(decoder.kv_shape, config.max_num_seqs, max_len)
        self._inputs = StepInputs(config.max_num_seqs, max_len)
        shape = next(node.shape for node in self._session.get_outputs() if node.name == decoder.logits)
        self._last_token_only = shape[1] == 1
        self._logits = np.zeros(config.max_num_seqs * decoder.vocab_size, np.float32)
        self._bindings: dict[tuple[int, int], Any] = {}

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
        return self._decoder.context_length

    @property
    def vocab_size(self) -> int:
        """Width of logits."""
        return self._decoder.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a generation."""
        return self._decoder.eos_token_ids

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache."""
        return self._decoder.kv_shape.total_bytes(self._kv.slots, self._kv.max_len)

    def prefill(self, row: int, token_ids: Sequence[int], position: int) -> Logits:
        """Append a prompt chunk to `row`, which holds `position` tokens; return the last token's logits [1, vocab]."""
        return self._run(row, np.asarray(token_ids, np.int64)[None, :], np.asarray([position], np.int64))

    def decode(self, first_row: int, token_ids: Sequence[int], positions: Sequence[int]) -> Logits:
        """Append `token_ids[i]` to row `first_row` + i, which holds `positions[i]` tokens; return logits [n, vocab]."""
        return self._run(first_row, np.asarray(token_ids, np.int64)[:, None], np.asarray(positions, np.int64))

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
        """Run two generations over all rows.

        Raises:
            ModelUnsupportedError: the graph does not run with shared KV buffers.
        """
        rows, tokens = self.max_num_seqs, min(WARM_UP_PROMPT_TOKENS, self.max_model_len - 1)
        try:
            for _ in range(WARM_UP_GENERATIONS):
                self.prefill(0, [0] * tokens, 0)
                self.decode(0, [0] * rows, [tokens] * rows)
        except Exception as error:  # whatever the runtime raises here, the model cannot be served
            raise ModelUnsupportedError(f"{self._decoder.path.name} does not run: {error}") from error

    def close(self) -> None:
        """Free the model and the KV cache."""
        self._bindings.clear()
        self._session = None

    def _run(self, first_row: int, ids: Int64Array, starts: Int64Array) -> Logits:
        rows, tokens = ids.shape
        binding = self._binding(first_row, rows)
        self._bind(binding, self._decoder.input_ids, self._inputs.token_ids(ids))
        self._bind(binding, self._decoder.attention_mask, self._inputs.attention_mask(starts + tokens))
        if self._decoder.position_ids is not None:
            self._bind(binding, self._decoder.position_ids, self._inputs.position_ids(starts, tokens))
        logits = self._logits_buffer(rows, 1 if self._last_token_only else tokens)
        binding.bind_output(self._decoder.logits, "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
        self._session.run_with_iobinding(binding)
        return logits[:, -1]

    def _binding(self, first_row: int, rows: int) -> Any:  # noqa: ANN401  # onnxruntime ships no types
        """Return the binding of these rows. Kept: naming two buffers per layer costs as much as a small operator."""
        if (first_row, rows) not in self._bindings:
            self._bindings[first_row, rows] = self._bind_rows(slice(first_row, first_row + rows))
        return self._bindings[first_row, rows]

    def _bind_rows(self, rows: slice) -> Any:  # noqa: ANN401  # onnxruntime ships no types
        decoder, binding = self._decoder, self._session.io_binding()
        for past, present, layers in (
            (decoder.past_keys, decoder.present_keys, self._kv.keys),
            (decoder.past_values, decoder.present_values, self._kv.values),
        ):
            for index, layer in enumerate(layers):
                view = layer[rows]
                self._bind(binding, past % index, view)
                binding.bind_output(present % index, "cpu", 0, np.float32, view.shape, view.ctypes.data)
        return binding

    @staticmethod
    def _bind(binding: Any, name: str, array: NDArray[Any]) -> None:  # noqa: ANN401  # onnxruntime ships no types
        binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def _logits_buffer(self, rows: int, tokens: int) -> Logits:
        shape = (rows, tokens, self.vocab_size)
        if self._logits.size < rows * tokens * self.vocab_size:
            self._logits = np.zeros(rows * tokens * self.vocab_size, np.float32)
        return self._logits[: rows * tokens * self.vocab_size].reshape(shape)
