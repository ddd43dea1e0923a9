"""What `genai_config.json` says about a decoder: shapes, and the names of its inputs and outputs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import ModelUnsupportedError
from workers.engine.kv_cache import KvShape

CONFIG_FILE = "genai_config.json"


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """One decoder graph. Names with `%d` take the layer number; `position_ids` is None where the graph has none."""

    path: Path
    context_length: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    kv_shape: KvShape
    input_ids: str
    attention_mask: str
    position_ids: str | None
    logits: str
    past_keys: str
    past_values: str
    present_keys: str
    present_values: str

    @property
    def past_names(self) -> frozenset[str]:
        """Names of all past key and value inputs."""
        layers = range(self.kv_shape.layers)
        return frozenset(name % layer for name in (self.past_keys, self.past_values) for layer in layers)

    @property
    def graph_inputs(self) -> frozenset[str]:
        """Every input a graph served by the continuous runner has."""
        positions = () if self.position_ids is None else (self.position_ids,)
        return self.past_names.union((self.input_ids, self.attention_mask), positions)

    @classmethod
    def read(cls, directory: Path) -> "DecoderConfig":
        """Read `directory`/genai_config.json.

        Raises:
            ModelUnsupportedError: the file is missing or malformed, or the decoder is of a kind not served here.
        """
        try:
            config = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
            return _from_json(directory, config)
        except FileNotFoundError as error:
            raise ModelUnsupportedError(
                f"{directory.name} has no {CONFIG_FILE}; give an onnxruntime-genai model directory"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise ModelUnsupportedError(f"{directory.name}/{CONFIG_FILE} is malformed: {error!r}") from error


def _from_json(directory: Path, config: dict[str, Any]) -> DecoderConfig:
    model = config["model"]
    decoder = model["decoder"]
    inputs, outputs = decoder["inputs"], decoder["outputs"]
    if not config["search"].get("past_present_share_buffer", False):
        raise ModelUnsupportedError(
            f"{directory.name} does not share past and present KV buffers (past_present_share_buffer); "
            "use the genai runner for it"
        )
    eos = model["eos_token_id"]
    return DecoderConfig(
        path=directory / decoder["filename"],
        context_length=int(model["context_length"]),
        vocab_size=int(model["vocab_size"]),
        eos_token_ids=frozenset(eos if isinstance(eos, list) else [eos]),
        kv_shape=KvShape(decoder["num_hidden_layers"], decoder["num_key_value_heads"], decoder["head_size"]),
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        position_ids=inputs.get("position_ids"),
        logits=outputs["logits"],
        past_keys=inputs["past_key_names"],
        past_values=inputs["past_value_names"],
        present_keys=outputs["present_key_names"],
        present_values=outputs["present_value_names"],
    )
