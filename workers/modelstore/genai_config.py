"""Writes `genai_config.json`, the description onnxruntime-genai and our runner load a model by."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.engine.decoder_config import CONFIG_FILE
from workers.modelstore.architecture import Architecture


def _decoder(architecture: Architecture) -> dict[str, Any]:
    return {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": architecture.head_size,
        "hidden_size": architecture.hidden_size,
        "num_attention_heads": architecture.heads,
        "num_hidden_layers": architecture.layers,
        "num_key_value_heads": architecture.kv_heads,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }


def write_config(architecture: Architecture, token_ids: Mapping[str, int | list[int]], directory: Path) -> None:
    """Write the configuration; `token_ids` holds `bos_token_id`, `eos_token_id` and `pad_token_id`."""
    model = {
        **token_ids,
        "context_length": architecture.context_length,
        "type": architecture.name,
        "vocab_size": architecture.vocab_size,
        "decoder": _decoder(architecture),
    }
    search = {"do_sample": False, "max_length": architecture.context_length, "past_present_share_buffer": True}
    (directory / CONFIG_FILE).write_text(json.dumps({"model": model, "search": search}, indent=1), encoding="utf-8")
