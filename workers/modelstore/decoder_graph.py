"""Builds the float32 graph of a llama-like decoder from a GGUF file."""

import numpy as np
import onnx
from onnx import TensorProto

from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.graph import CONTRIB, LAST_HIDDEN, GraphBuilder


class DecoderGraph:
    """One decoder under construction: embeddings, layers, logits of the last position."""

    def __init__(self, file: GgufFile) -> None:
        """Take the weights and sizes from `file`."""
        self._file = file
        self._arch = file.architecture
        self._builder = GraphBuilder(self._arch.norm_epsilon)

    def build(self) -> onnx.ModelProto:
        """Return the model. `logits` is `[batch, 1, vocabulary]`: the runner feeds rows of equal length."""
        builder = self._builder
        self._add_lengths_and_rotary_caches()
        builder.constant("embed_tokens.weight", self._file.weight("token_embd.weight"))
        residual = builder.node("Gather", ["embed_tokens.weight", "input_ids"], "embeddings", axis=0)
        hidden = builder.norm(residual, self._file.weight("blk.0.attn_norm.weight"), "layers.0.input_norm")
        for layer in range(self._arch.layers):
            hidden, residual = self._add_layer(layer, hidden, residual)
        last = builder.constant("last_position", np.array([-1], np.int64))
        builder.node("Gather", [hidden, last], LAST_HIDDEN, axis=1)
        self._add_logits()
        return builder.model(self._arch)

    def _add_lengths_and_rotary_caches(self) -> None:
        builder = self._builder
        builder.constant("one", np.array([1], np.int64))
        builder.node("ReduceSum", ["attention_mask", "one"], "row_lengths", keepdims=0)
        builder.node("Sub", ["row_lengths", "one"], "last_indices")
        builder.node("Cast", ["last_indices"], "seqlens_k", to=TensorProto.INT32)
        builder.node("Shape", ["attention_mask"], "mask_shape")
        builder.constant("mask_axis", np.array(1, np.int64))
        builder.node("Gather", ["mask_shape", "mask_axis"], "longest", axis=0)
        builder.node("Cast", ["longest"], "total_sequence_length", to=TensorProto.INT32)
        divisors = self._file.weight("rope_freqs.weight") if "rope_freqs.weight" in self._file else None
        cosines, sines = self._arch.rotary_caches(divisors)
        builder.constant("cos_cache", cosines)
        builder.constant("sin_cache", sines)

    def _add_layer(self, layer: int, hidden: str, residual: str) -> tuple[str, str]:
        builder, file = self._builder, self._file
        name, block = f"layers.{layer}", f"blk.{layer}"
        attention = builder.linear(
            self._add_attention(layer, hidden), file.weight(f"{block}.attn_output.weight"), f"{name}.attn.o_proj"
        )
        hidden = builder.skip_norm(
            residual,
            attention,
            file.weight(f"{block}.ffn_norm.weight"),
            f"{name}.post_attention_norm",
            f"{name}.after_attention",
        )
        mlp = self._add_mlp(layer, hidden)
        last = layer + 1 == self._arch.layers
        weight = file.weight("output_norm.weight" if last else f"blk.{layer + 1}.attn_norm.weight")
        output, total = ("final_norm", "") if last else (f"layers.{layer + 1}.input_norm", f"{name}.after_mlp")
        return builder.skip_norm(f"{name}.after_attention", mlp, weight, output, total), total

    def _add_attention(self, layer: int, hidden: str) -> str:
        arch, builder, name = self._arch, self._builder, f"layers.{layer}"
        weight = np.concatenate([self._file.projection(layer, which) for which in "qkv"])
        qkv = builder.linear(hidden, weight, f"{name}.attn.qkv_proj")
        if f"blk.{layer}.attn_q.bias" in self._file:
            bias = np.concatenate([self._file.projection(layer, which, "bias") for which in "qkv"])
            qkv = builder.node("Add", [qkv, builder.constant(f"{qkv}.bias", bias)], f"{qkv}.biased")
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        common = [*past, "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache"]
        return builder.node(
            "GroupQueryAttention",
            [*self._split_and_normed(layer, qkv), *common],
            f"{name}.attn",
            *(f"present.{layer}.{kind}" for kind in ("key", "value")),
            domain=CONTRIB,
            num_heads=arch.heads,
            kv_num_heads=arch.kv_heads,
            scale=arch.head_size**-0.5,
            do_rotary=1,
            rotary_interleaved=0,
            local_window_size=-1,
        )

    def _split_and_normed(self, layer: int, qkv: str) -> list[str]:
        """Return queries, keys and values: packed where heads have no norms of their own (Qwen 3 has)."""
        if f"blk.{layer}.attn_q_norm.weight" not in self._file:
            return [qkv, "", ""]
        arch, builder, name = self._arch, self._builder, f"layers.{layer}.attn"
        sizes = np.array([arch.heads, arch.kv_heads, arch.kv_heads], np.int64) * arch.head_size
        q, k, v = (f"{name}.{which}" for which in "qkv")
        builder.node("Split", [qkv, builder.constant("qkv_sizes", sizes)], q, k, v, axis=-1)
        return [self._head_norm(q, f"blk.{layer}.attn_q_norm"), self._head_norm(k, f"blk.{layer}.attn_k_norm"), v]

    def _head_norm(self, values: str, weight: str) -> str:
        builder = self._builder
        heads = builder.constant("head_shape", np.array([0, 0, -1, self._arch.head_size], np.int64))
        joined = builder.constant("joined_shape", np.array([0, 0, -1], np.int64))
        split = builder.node("Reshape", [values, heads], f"{values}.heads")
        normed = builder.norm(split, self._file.weight(f"{weight}.weight"), f"{values}.norm")
        return builder.node("Reshape", [normed, joined], f"{values}.normed")

    def _add_mlp(self, layer: int, hidden: str) -> str:
        builder, name, block = self._builder, f"layers.{layer}.mlp", f"blk.{layer}"
        gate = builder.linear(hidden, self._file.weight(f"{block}.ffn_gate.weight"), f"{name}.gate_proj")
        up = builder.linear(hidden, self._file.weight(f"{block}.ffn_up.weight"), f"{name}.up_proj")
        silu = builder.node("QuickGelu", [gate], f"{name}.silu", domain=CONTRIB, alpha=1.0)
        product = builder.node("Mul", [silu, up], f"{name}.product")
        return builder.linear(product, self._file.weight(f"{block}.ffn_down.weight"), f"{name}.down_proj")

    def _add_logits(self) -> None:
        if "output.weight" in self._file:
            weight = self._file.weight("output.weight")
            self._builder.node("MatMul", [LAST_HIDDEN, self._builder.constant("lm_head.weight", weight.T)], "logits")
        else:  # tied: one stored table serves both ends
            self._builder.node("FusedMatMul", [LAST_HIDDEN, "embed_tokens.weight"], "logits", domain=CONTRIB, transB=1)
