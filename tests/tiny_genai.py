"""A decoder of a few hundred weights as an onnxruntime-genai directory, and the same in numpy.

It does not share KV buffers, so the continuous runner refuses it. `present` holds, per token, its embedding times that
of its position; logits are a function of the sum over all tokens and of the last one.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

VOCAB, HIDDEN, RANK, CONTEXT, EOS, PAD = 24, 8, 2, 4096, 2, 3
Weights = NDArray[np.float32]
NODES: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
    ("Gather", ["embedding", "input_ids"], "embedded", {}),
    ("Gather", ["positions", "position_ids"], "placed", {}),
    ("Mul", ["embedded", "placed"], "token", {}),
    ("Unsqueeze", ["token", "axis1"], "token4", {}),
    ("Concat", ["past.0.value", "token4"], "present.0.value", {"axis": 2}),
    ("Concat", ["past.0.key", "token4"], "present.0.key", {"axis": 2}),
    ("ReduceSum", ["present.0.value", "axis2"], "total3", {"keepdims": 0}),
    ("Tanh", ["total3"], "state", {}),
    ("Gather", ["embedded", "last"], "newest", {"axis": 1}),
    ("MatMul", ["state", "from_state"], "state_logits", {}),
    ("MatMul", ["newest", "from_token"], "token_logits", {}),
    ("MatMul", ["newest", "lora_a"], "low_rank", {}),
    ("MatMul", ["low_rank", "lora_b"], "adapter_logits", {}),
    ("Sum", ["state_logits", "token_logits", "adapter_logits"], "logits", {}),
)


@dataclass(frozen=True)
class TinyGenai:
    """Random weights; `end_bias` is added to the logits of the end token."""

    weights: dict[str, Weights]

    @classmethod
    def random(cls, seed: int = 5, end_bias: float = 0.0, vocab: int = VOCAB) -> "TinyGenai":
        random = np.random.default_rng(seed)

        def matrix(*shape: int) -> Weights:
            return random.normal(size=shape).astype(np.float32)

        weights = {
            "embedding": matrix(vocab, HIDDEN),
            "positions": matrix(CONTEXT, HIDDEN),
            "from_state": matrix(HIDDEN, vocab),
            "from_token": matrix(HIDDEN, vocab) * np.float32(0.7),
            "lora_a": np.zeros((HIDDEN, RANK), np.float32),
            "lora_b": np.zeros((RANK, vocab), np.float32),
        }
        # The state's last channel is nearly 1 for ever: its row in `from_state` is a bias.
        weights["embedding"][:, -1], weights["positions"][:, -1] = 3, 3
        weights["from_state"][-1], weights["from_token"][-1] = 0, 0
        weights["from_state"][-1, EOS] = end_bias
        return cls(weights)

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return len(self.weights["embedding"])

    def adapted(self, seed: int) -> "TinyGenai":
        """Return the same model with a random adapter merged into its logits."""
        random = np.random.default_rng(seed)
        adapter = {name: random.normal(size=self.weights[name].shape) for name in ("lora_a", "lora_b")}
        return TinyGenai(self.weights | {name: values.astype(np.float32) for name, values in adapter.items()})

    def logits(self, ids: list[int]) -> NDArray[np.float64]:
        """Return `[vocab]`, what follows `ids`."""
        w = {name: values.astype(np.float64) for name, values in self.weights.items()}
        state = np.tanh((w["embedding"][ids] * w["positions"][: len(ids)]).sum(axis=0))
        newest = w["embedding"][ids[-1]]
        return np.asarray(
            state @ w["from_state"] + newest @ w["from_token"] + newest @ w["lora_a"] @ w["lora_b"], np.float64
        )

    def greedy(self, ids: list[int], count: int) -> list[int]:
        """Return the most likely tokens up to `count`, without the end token."""
        out: list[int] = []
        while len(out) < count and (token_id := int(self.logits([*ids, *out]).argmax())) != EOS:
            out.append(token_id)
        return out

    def write(self, directory: Path, *, context: int = CONTEXT) -> Path:
        """Write graph and configuration; return `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        onnx.save(_model(self.weights), directory / "model.onnx")
        (directory / "genai_config.json").write_text(json.dumps(_config(context, self.vocab)), encoding="utf-8")
        return directory

    def write_adapter(self, directory: Path, name: str) -> None:
        """Write the adapter weights as `adapters/<name>.onnx_adapter` into the model `directory`."""
        adapter = onnxruntime.AdapterFormat()
        values = {part: self.weights[part] for part in ("lora_a", "lora_b")}
        adapter.set_parameters(
            {part: onnxruntime.OrtValue.ortvalue_from_numpy(values[part]) for part in ("lora_a", "lora_b")}
        )
        (directory / "adapters").mkdir(exist_ok=True)
        adapter.export_adapter(str(directory / "adapters" / f"{name}.onnx_adapter"))


def _model(weights: dict[str, Weights]) -> onnx.ModelProto:
    def tensor(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    vocab = len(weights["embedding"])
    ints, floats = TensorProto.INT64, TensorProto.FLOAT
    constants = {"axis1": np.array([1]), "axis2": np.array([2]), "last": np.array([-1])}
    inputs = [tensor(name, ints, "batch", "tokens") for name in ("input_ids", "position_ids")]
    inputs.append(tensor("attention_mask", ints, "batch", "all"))
    inputs += [tensor(f"past.0.{kind}", floats, "batch", 1, "past", HIDDEN) for kind in ("key", "value")]
    # Inputs with a default: an adapter may replace them.
    inputs += [tensor("lora_a", floats, HIDDEN, "rank"), tensor("lora_b", floats, "rank", vocab)]
    outputs = [tensor("logits", floats, "batch", 1, vocab)]
    outputs += [tensor(f"present.0.{kind}", floats, "batch", 1, "all", HIDDEN) for kind in ("key", "value")]
    graph = helper.make_graph(
        [helper.make_node(op, ins, [out], **attributes) for op, ins, out, attributes in NODES],
        "tiny",
        inputs,
        outputs,
        [numpy_helper.from_array(values, name) for name, values in (weights | constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _config(context: int, vocab: int) -> dict[str, object]:
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": HIDDEN,
        "hidden_size": HIDDEN,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "num_key_value_heads": 1,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "position_ids": "position_ids",
            "past_key_names": "past.%d.key",
            "past_value_names": "past.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    model = {
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "context_length": context,
        "type": "llama",
        "vocab_size": vocab,
        "decoder": decoder,
    }
    search = {"do_sample": False, "max_length": context, "past_present_share_buffer": False}
    return {"model": model, "search": search}
