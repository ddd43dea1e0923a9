"""A tiny random decoder: as a GGUF file, and as a plain numpy forward pass that says what its graph must compute."""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

Array = NDArray[np.float64]
LAYERS, HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, HEAD_SIZE = 2, 64, 96, 4, 2, 16
CONTEXT, EPSILON, THETA = 64, 1e-5, 10000.0
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"


@dataclass(frozen=True)
class TinyModel:
    """Weights by GGUF name, `[outputs, inputs]`, rotary pairs half a head apart (llama's are permuted on writing)."""

    architecture: str
    weights: dict[str, NDArray[np.float32]]

    @classmethod
    def random(cls, architecture: str, *, tied: bool = True, rope_divisors: bool = False) -> "TinyModel":
        random = np.random.default_rng(7)

        def matrix(*shape: int) -> NDArray[np.float32]:
            return np.asarray(random.normal(size=shape) / np.sqrt(shape[-1]), np.float32)

        def scales(size: int) -> NDArray[np.float32]:
            return random.uniform(0.5, 1.5, size).astype(np.float32)

        vocabulary = len(tokens())
        weights = {"token_embd.weight": matrix(vocabulary, HIDDEN) * 6, "output_norm.weight": scales(HIDDEN)}
        if not tied:
            weights["output.weight"] = matrix(vocabulary, HIDDEN)
        if rope_divisors:
            weights["rope_freqs.weight"] = np.array([1, 1, 1, 1, 2, 4, 8, 8], np.float32)
        sizes = {"q": HEADS * HEAD_SIZE, "k": KV_HEADS * HEAD_SIZE, "v": KV_HEADS * HEAD_SIZE}
        for layer in range(LAYERS):
            block = {f"attn_{which}.weight": matrix(size, HIDDEN) for which, size in sizes.items()}
            block["attn_output.weight"] = matrix(HIDDEN, sizes["q"])
            block |= {f"ffn_{which}.weight": matrix(FEED_FORWARD, HIDDEN) for which in ("gate", "up")}
            block["ffn_down.weight"] = matrix(HIDDEN, FEED_FORWARD)
            block |= {f"{which}_norm.weight": scales(HIDDEN) for which in ("attn", "ffn")}
            if architecture == "qwen2":
                block |= {f"attn_{which}.bias": matrix(size) for which, size in sizes.items()}
            if architecture == "qwen3":
                block |= {f"attn_{which}_norm.weight": scales(HEAD_SIZE) for which in "qk"}
            weights |= {f"blk.{layer}.{name}": values for name, values in block.items()}
        return cls(architecture, weights)

    def write(self, path: Path, **fields: str | int) -> Path:
        """Write the file; `fields` override or add metadata."""
        name = self.architecture
        writer = gguf.GGUFWriter(path, name)
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(HIDDEN)
        writer.add_block_count(LAYERS)
        writer.add_feed_forward_length(FEED_FORWARD)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(EPSILON)
        writer.add_rope_freq_base(THETA)
        _add_tokenizer(writer)
        for key, value in fields.items():
            _add_field(writer, key.replace("__", "."), value)
        for key, values in self.weights.items():
            writer.add_tensor(key, self._stored(key, values))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _stored(self, key: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        heads = HEADS if "attn_q." in key else KV_HEADS if "attn_k." in key else 0
        if self.architecture != "llama" or not heads:
            return values
        return values.reshape(heads, 2, HEAD_SIZE // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)

    def logits(self, ids: list[int]) -> Array:
        """Return `[len(ids), vocabulary]` in float64."""
        w = {name: values.astype(np.float64) for name, values in self.weights.items()}
        x = w["token_embd.weight"][ids]
        for layer in range(LAYERS):
            b = {name.removeprefix(f"blk.{layer}."): v for name, v in w.items() if name.startswith(f"blk.{layer}.")}
            x = x + self._attention(_norm(x, b["attn_norm.weight"]), b) @ b["attn_output.weight"].T
            h = _norm(x, b["ffn_norm.weight"])
            gate = h @ b["ffn_gate.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ b["ffn_up.weight"].T)) @ b["ffn_down.weight"].T
        head = w.get("output.weight", w["token_embd.weight"])
        return np.asarray(_norm(x, w["output_norm.weight"]) @ head.T, np.float64)

    def _attention(self, x: Array, b: dict[str, Array]) -> Array:
        def heads(which: str, count: int) -> Array:
            values = x @ b[f"attn_{which}.weight"].T + b.get(f"attn_{which}.bias", np.zeros(1))
            return values.reshape(len(x), count, HEAD_SIZE)

        q, k, v = heads("q", HEADS), heads("k", KV_HEADS), heads("v", KV_HEADS)
        if self.architecture == "qwen3":
            q, k = _norm(q, b["attn_q_norm.weight"]), _norm(k, b["attn_k_norm.weight"])
        q, k = self._rotate(q), self._rotate(k)
        k, v = (np.repeat(values, HEADS // KV_HEADS, axis=1) for values in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD_SIZE)
        scores = np.where(np.tril(np.ones((len(x), len(x)), bool)), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return np.asarray(np.einsum("hqk,khd->qhd", shares, v).reshape(len(x), -1), np.float64)

    def _rotate(self, x: Array) -> Array:
        frequencies = THETA ** -(np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
        angles = np.outer(np.arange(len(x)), frequencies / self.weights.get("rope_freqs.weight", 1.0))[:, None]
        low, high = x[..., : HEAD_SIZE // 2], x[..., HEAD_SIZE // 2 :]
        return np.concatenate(
            [low * np.cos(angles) - high * np.sin(angles), high * np.cos(angles) + low * np.sin(angles)], axis=-1
        )


def _norm(x: Array, weight: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) * weight, np.float64)


def _add_field(writer: gguf.GGUFWriter, key: str, value: str | int) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_uint32(key, value)


def tokens() -> list[str]:
    return [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "Ġa"]


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens())
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens()) - len(SPECIALS)))
    writer.add_token_merges(["t h", "Ġ a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
