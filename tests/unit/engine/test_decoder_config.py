import json
from pathlib import Path
from typing import Any

import pytest

from shared.errors import ModelUnsupportedError
from workers.engine.decoder_config import DecoderConfig


def config(**inputs: str) -> dict[str, Any]:
    names = {"input_ids": "ids", "attention_mask": "mask", "past_key_names": "k%d", "past_value_names": "v%d"}
    outputs = {"logits": "logits", "present_key_names": "pk%d", "present_value_names": "pv%d"}
    decoder = {
        "filename": "m.onnx",
        "num_hidden_layers": 2,
        "num_key_value_heads": 3,
        "head_size": 4,
        "inputs": {**names, **inputs},
        "outputs": outputs,
    }
    model = {"context_length": 64, "vocab_size": 10, "eos_token_id": 2, "decoder": decoder}
    return {"model": model, "search": {"past_present_share_buffer": True}}


def read(directory: Path, content: dict[str, Any]) -> DecoderConfig:
    (directory / "genai_config.json").write_text(json.dumps(content), encoding="utf-8")
    return DecoderConfig.read(directory)


def test_names_and_shapes_come_from_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, config())
    assert found.graph_inputs == {"ids", "mask", "k0", "k1", "v0", "v1"}
    assert found.path == tmp_path / "m.onnx"
    assert found.eos_token_ids == {2}
    assert found.kv_shape.bytes_per_token("float32") == 2 * 2 * 3 * 4 * 4
    assert found.kv_shape.bytes_per_token("int8") == 2 * 2 * 3 * (4 + 4)


def test_position_ids_and_several_end_tokens(tmp_path: Path) -> None:
    content = config(position_ids="positions")
    content["model"]["eos_token_id"] = [2, 7]
    found = read(tmp_path, content)
    assert "positions" in found.graph_inputs
    assert found.eos_token_ids == {2, 7}


def test_unshared_kv_buffers_are_refused(tmp_path: Path) -> None:
    content = config()
    content["search"]["past_present_share_buffer"] = False
    with pytest.raises(ModelUnsupportedError, match="past_present_share_buffer"):
        read(tmp_path, content)


def test_a_missing_file_and_a_missing_key_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupportedError, match=r"genai_config\.json"):
        DecoderConfig.read(tmp_path)
    content = config()
    del content["model"]["decoder"]["head_size"]
    with pytest.raises(ModelUnsupportedError, match="head_size"):
        read(tmp_path, content)
