from pathlib import Path

import numpy as np
import pytest

from shared.errors import ModelUnsupportedError
from tests.unit.modelstore.tiny_model import TinyModel
from workers.modelstore.gguf_import import convert_gguf
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.quality import open_session

IDS = [1, 17, 44, 201, 9, 5, 5, 130]


def imported(model: TinyModel, folder: Path) -> Path:
    convert_gguf(GgufFile(model.write(folder / "tiny.gguf")), folder / "out")
    return folder / "out"


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("options", [{"tied": True}, {"tied": False}])
def test_the_graph_computes_what_the_plain_forward_pass_does(
    tmp_path: Path, architecture: str, options: dict[str, bool]
) -> None:
    model = TinyModel.random(architecture, **options)
    (logits,) = open_session(imported(model, tmp_path)).run(IDS, ["logits"])
    np.testing.assert_allclose(logits, model.logits(IDS), rtol=1e-3, atol=2e-4)


def test_frequency_divisors_of_llama_three_are_applied(tmp_path: Path) -> None:
    model = TinyModel.random("llama", rope_divisors=True)
    (logits,) = open_session(imported(model, tmp_path)).run(IDS, ["logits"])
    np.testing.assert_allclose(logits, model.logits(IDS), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"general__architecture": "gemma"}, "supported: llama, qwen2, qwen3"),
        ({"llama__expert_count": 8}, "mixture of experts"),
        ({"llama__rope__scaling__type": "yarn"}, "scaled rotary"),
        ({"llama__rope__dimension_count": 4}, "partial rotary"),
        ({"tokenizer__ggml__model": "llama"}, r"tokenizer llama/smollm"),
        ({"tokenizer__ggml__pre": "chatglm-bpe"}, "gpt2/qwen2"),
        ({"tokenizer__chat_template": " "}, "instruction-tuned"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_the_reason(
    tmp_path: Path, fields: dict[str, str | int], reason: str
) -> None:
    path = TinyModel.random("llama").write(tmp_path / "tiny.gguf", **fields)
    with pytest.raises(ModelUnsupportedError, match=reason):
        convert_gguf(GgufFile(path), tmp_path / "out")


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a model at all, only some text that is long enough")
    with pytest.raises(ModelUnsupportedError, match="not a readable GGUF"):
        GgufFile(tmp_path / "x.gguf")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    model = TinyModel.random("llama")
    del model.weights["blk.1.ffn_up.weight"]
    with pytest.raises(ModelUnsupportedError, match=r"blk\.1\.ffn_up\.weight"):
        convert_gguf(GgufFile(model.write(tmp_path / "tiny.gguf")), tmp_path / "out")
