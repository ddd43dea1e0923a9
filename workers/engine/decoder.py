"""A decoder over our own KV rows: segments run by the runtime, attention between them by us."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelUnsupportedError
from workers.engine.attention.attention import Attention
from workers.engine.attention.kernels import Tokens
from workers.engine.decoder_config import DecoderConfig
from workers.engine.kv_cache import KvCache
from workers.engine.model_runner import Logits
from workers.engine.packed_model import PackedModel
from workers.engine.segment_session import SegmentSession
from workers.engine.segments import AttentionLayer, SegmentedDecoder

Values = dict[str, NDArray[Any]]
Indices = NDArray[np.int64]


class Buffers:
    """Named buffers that grow to the largest step and are handed out as views: steps allocate nothing."""

    def __init__(self) -> None:
        """Start empty."""
        self._flat: dict[str, NDArray[np.float32]] = {}

    def view(self, name: str, tokens: int, width: int) -> NDArray[np.float32]:
        """Return [tokens, 1, width] of the buffer `name`; what it held before is void."""
        if name not in self._flat or self._flat[name].size < tokens * width:
            self._flat[name] = np.empty(tokens * width, np.float32)
        return self._flat[name][: tokens * width].reshape(tokens, 1, width)


class Decoder:
    """Computes any mix of tokens of any rows in one pass."""

    def __init__(self, config: DecoderConfig, threads: int, packed_dir: Path | None = None) -> None:
        """Load the model that `config` describes, through packed files in `packed_dir` if that is given.

        Raises:
            ModelUnsupportedError: it cannot be cut at its attentions, or onnxruntime refuses a part.
        """
        cut = SegmentedDecoder.read(config)
        directory: Path = config.path.parent
        self._config, self._layers = config, cut.layers
        shared = PackedModel(packed_dir, config, cut.segments).open(threads) if packed_dir else None
        self._sessions = shared or [SegmentSession(segment, directory, threads) for segment in cut.segments]
        self._attention = Attention(threads)
        self._buffers = Buffers()
        self._widths = self._measure()

    def close(self) -> None:
        """Free the model."""
        self._attention.close()
        self._sessions = []

    def run(self, kv: KvCache, ids: Indices, rows: Indices, positions: Indices, *, last: Indices) -> Logits:
        """Append tokens to their rows; return logits [len(last), vocab] of the tokens numbered in `last`.

        `ids`, `rows` and `positions` are [tokens]; tokens of one row stand together, in order.
        """
        values = self._ids(ids, positions)
        for index, (session, layer) in enumerate(zip(self._sessions, self._layers, strict=False)):
            made = {name: self._buffer(name, len(ids), index) for name in session.outputs}
            session.run(values, made)
            values |= made
            tokens = Tokens(self._packed(layer, values, len(ids)), rows, positions)
            self._attention.append(tokens, layer.geometry, kv.layers[index])
            if index + 1 == len(self._layers):  # the others' keys and values are written; more is not asked of them
                tokens = Tokens(tokens.qkv[last], rows[last], positions[last])
            output = self._buffers.view("attention", tokens.rows.size, self._attention_width(layer))
            self._attention.attend(tokens, layer.geometry, kv.layers[index], output[:, 0])
            values[layer.output] = output
        return self._logits(values, last)

    def _ids(self, ids: Indices, positions: Indices) -> Values:
        values: Values = {self._config.input_ids: ids[:, None]}
        if self._config.position_ids is not None:
            values[self._config.position_ids] = positions[:, None]
        return values

    def _packed(self, layer: AttentionLayer, values: Values, tokens: int) -> NDArray[np.float32]:
        parts = [values[name] for name in layer.inputs]
        if len(parts) == 1:
            return parts[0].reshape(tokens, -1)
        packed = self._buffers.view("packed", tokens, sum(part.shape[2] for part in parts))
        return np.concatenate(parts, axis=2, out=packed).reshape(tokens, -1)

    def _logits(self, values: Values, last: Indices) -> Logits:
        if not last.size:
            return np.empty((0, self._config.vocab_size), np.float32)
        session, attention = self._sessions[-1], self._layers[-1].output
        wanted = {name: values[name] if name == attention else values[name][last] for name in session.inputs}
        logits = self._buffers.view("logits", last.size, self._config.vocab_size)
        session.run(wanted, {self._config.logits: logits})
        return logits[:, 0]

    def _buffer(self, name: str, tokens: int, index: int) -> NDArray[np.float32]:
        # A segment reads what the one before it wrote: two buffers of a kind take turns.
        width = self._widths[name]
        return self._buffers.view(
            f"{width}.{list(self._sessions[index].outputs).index(name)}.{index % 2}", tokens, width
        )

    def _attention_width(self, layer: AttentionLayer) -> int:
        return layer.heads * self._config.kv_shape.head_size

    def _measure(self) -> dict[str, int]:
        """Run one token through all segments; return the width of every value that leaves one."""
        one = np.zeros(1, np.int64)
        values, widths = self._ids(one, one), dict[str, int]()
        for index, session in enumerate(self._sessions):
            found = session.widths(values)
            widths |= found
            values |= {name: np.zeros((1, 1, width), np.float32) for name, width in found.items()}
            if index < len(self._layers):
                layer = self._layers[index]
                self._check_packed(layer, sum(found[name] for name in layer.inputs))
                values[layer.output] = np.zeros((1, 1, self._attention_width(layer)), np.float32)
        if widths[self._config.logits] != self._config.vocab_size:
            raise ModelUnsupportedError(
                f"logits are {widths[self._config.logits]} wide, the configuration says {self._config.vocab_size}"
            )
        return widths

    def _check_packed(self, layer: AttentionLayer, width: int) -> None:
        expected = (layer.heads + 2 * layer.kv_heads) * self._config.kv_shape.head_size
        if width != expected:
            raise ModelUnsupportedError(
                f"an attention of {layer.heads} heads and {layer.kv_heads} KV heads of"
                f" {self._config.kv_shape.head_size} gets {width} channels, not {expected}"
            )
