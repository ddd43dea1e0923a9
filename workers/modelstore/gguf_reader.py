"""Reads a GGUF file: architecture, dequantised weights and the tokenizer's fields."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from shared.errors import ModelUnsupportedError
from workers.modelstore.architecture import Architecture, FloatArray

SUPPORTED = ("llama", "qwen2", "qwen3")


class GgufFile:
    """One GGUF file, memory-mapped. Weights come out in float32, `[outputs, inputs]`."""

    def __init__(self, path: Path) -> None:
        """Open `path`.

        Raises:
            ModelUnsupportedError: it is not a GGUF file, or its version is unknown.
        """
        try:
            self._reader = GGUFReader(path)
        except (ValueError, OSError, IndexError) as error:
            raise ModelUnsupportedError(f"{path} is not a readable GGUF file ({type(error).__name__})") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def field(self, key: str, default: Any = None) -> Any:  # noqa: ANN401  # GGUF fields hold any JSON-like value
        """Return a metadata value, or `default` where the file has none."""
        entry = self._reader.fields.get(key)
        return default if entry is None else entry.contents()

    def _required(self, key: str) -> Any:  # noqa: ANN401  # the same
        value = self.field(key)
        if value is None:
            raise ModelUnsupportedError(f"the GGUF file has no {key}; convert the model with a current llama.cpp")
        return value

    @cached_property
    def architecture(self) -> Architecture:
        """The decoder's sizes.

        Raises:
            ModelUnsupportedError: another architecture, experts, scaled or partial rotary embeddings.
        """
        name = self._required("general.architecture")
        if name not in SUPPORTED:
            raise ModelUnsupportedError(f"architecture {name!r} is not supported; supported: {', '.join(SUPPORTED)}")
        self._refuse_variants(name)
        hidden, heads = self._required(f"{name}.embedding_length"), self._required(f"{name}.attention.head_count")
        return Architecture(
            name=name,
            layers=self._required(f"{name}.block_count"),
            hidden_size=hidden,
            feed_forward_size=self._required(f"{name}.feed_forward_length"),
            heads=heads,
            kv_heads=self.field(f"{name}.attention.head_count_kv", heads),
            head_size=self.field(f"{name}.attention.key_length", hidden // heads),
            vocab_size=int(self._tensors["token_embd.weight"].shape[1]),
            context_length=self._required(f"{name}.context_length"),
            norm_epsilon=self._required(f"{name}.attention.layer_norm_rms_epsilon"),
            rope_theta=self.field(f"{name}.rope.freq_base", 10000.0),
        )

    def _refuse_variants(self, name: str) -> None:
        head_size = self.field(f"{name}.attention.key_length") or (
            self._required(f"{name}.embedding_length") // self._required(f"{name}.attention.head_count")
        )
        reasons = {
            "a mixture of experts": self.field(f"{name}.expert_count", 0) > 0,
            "scaled rotary embeddings": self.field(f"{name}.rope.scaling.type", "none") != "none",
            "partial rotary embeddings": self.field(f"{name}.rope.dimension_count", head_size) != head_size,
            f"heads of {head_size} (no multiple of 16)": head_size % 16 != 0,
            "sliding-window attention": bool(self.field(f"{name}.attention.sliding_window", 0)),
        }
        found = [reason for reason, present in reasons.items() if present]
        if found:
            raise ModelUnsupportedError(f"{name} with {found[0]} is not supported; choose a dense {name} model")

    def __contains__(self, name: str) -> bool:
        """Whether the file has a tensor of that name."""
        return name in self._tensors

    @property
    def parameters(self) -> int:
        """Number of weights stored (tied embeddings count once)."""
        return sum(int(tensor.n_elements) for tensor in self._reader.tensors)

    def weight(self, name: str) -> FloatArray:
        """Return one tensor in float32, `[outputs, inputs]` or `[outputs]`.

        Raises:
            ModelUnsupportedError: the file lacks it, or its quantisation is unknown.
        """
        if name not in self._tensors:
            raise ModelUnsupportedError(f"the GGUF file has no tensor {name}; it is incomplete or of another kind")
        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ModelUnsupportedError(f"tensor {name} has the unknown type {tensor.tensor_type.name}") from error
        return np.ascontiguousarray(values, np.float32).reshape([int(size) for size in reversed(tensor.shape)])

    def projection(self, layer: int, which: str, kind: str = "weight") -> FloatArray:
        """Return `attn_q`, `attn_k` or `attn_v` with rotary pairs half a head apart.

        llama.cpp stores llama's queries and keys with the two halves of each head interleaved.
        """
        values = self.weight(f"blk.{layer}.attn_{which}.{kind}")
        if self.architecture.name != "llama" or which == "v":
            return values
        heads = self.architecture.heads if which == "q" else self.architecture.kv_heads
        paired = values.reshape(heads, self.architecture.head_size // 2, 2, *values.shape[1:])
        return np.ascontiguousarray(paired.swapaxes(1, 2).reshape(values.shape))
