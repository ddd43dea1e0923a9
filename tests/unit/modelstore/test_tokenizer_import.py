import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from shared.tokenizer import ChatTokenizer
from tests.unit.modelstore.tiny_model import TinyModel
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.tokenizer_import import build_tokenizer, token_ids, write_tokenizer


def tokenizer_for(folder: Path, pre: str) -> Tokenizer:
    path = TinyModel.random("llama").write(folder / "tiny.gguf", tokenizer__ggml__pre=pre)
    return build_tokenizer(GgufFile(path))


TEXT = "it's 1234 HTTPServerName a/b!! 中文，x"
GPT2 = ["it", "'s", "Ġ1234", "ĠHTTPServerName", "Ġa", "/", "b", "!!", "Ġ中文", "，", "x"]
SMOLLM = ["it", "'s", "Ġ", *"1234", "ĠHTTPServerName", "Ġa", "/", "b", "!!", "Ġ中文", "，", "x"]
QWEN = ["it", "'s", "Ġ", *"1234", "ĠHTTPServerName", "Ġa", "/b", "!!", "Ġ中文", "，x"]
LLAMA = ["it", "'s", "Ġ", "123", "4", "ĠHTTPServerName", "Ġa", "/b", "!!", "Ġ中文", "，x"]
TEKKEN = ["it", "'s", "Ġ", *"1234", "ĠHTTPServer", "Name", "Ġa", "/b", "!!", "Ġ中文", "，x"]
DEFAULT = ["it", "'", "s", "Ġ", "123", "4", "ĠHTTPServerName", "Ġa", "/", "b", "!!", "Ġ中文", "，", "x"]


@pytest.mark.parametrize(
    ("names", "pieces"),
    [
        (["gpt-2", "mpt", "olmo"], GPT2),
        (["smollm", "starcoder", "minerva-7b"], SMOLLM),
        (["qwen2", "deepseek-r1-qwen", "megrez"], QWEN),
        (["llama-bpe", "llama3", "llama-v3", "falcon3", "smaug-bpe"], LLAMA),
        (["tekken"], TEKKEN),
        (["default"], DEFAULT),
    ],
)
def test_each_pre_tokenizer_cuts_as_its_models_do(tmp_path: Path, names: list[str], pieces: list[str]) -> None:
    for name in names:
        pre_tokenizer = tokenizer_for(tmp_path, name).pre_tokenizer
        assert pre_tokenizer is not None
        cuts = [TEXT[start:stop].replace(" ", "Ġ") for _, (start, stop) in pre_tokenizer.pre_tokenize_str(TEXT)]
        assert cuts == pieces, name


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("smaug-bpe", False), ("qwen2", False)])
def test_llama_three_takes_words_of_the_vocabulary_whole(tmp_path: Path, pre: str, *, whole: bool) -> None:
    state = json.loads(tokenizer_for(tmp_path, pre).to_str())
    assert state["model"]["ignore_merges"] is whole


def test_qwen_composes_characters_first(tmp_path: Path) -> None:
    tokenizer = tokenizer_for(tmp_path, "qwen2")
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("\u00e9").ids


def test_control_tokens_are_special_and_merges_apply(tmp_path: Path) -> None:
    tokenizer = tokenizer_for(tmp_path, "smollm")
    assert tokenizer.encode("<|im_end|>th").tokens == ["<|im_end|>", "th"]
    assert tokenizer.decode(tokenizer.encode("<|im_end|>the a\n").ids) == "the a\n"


def test_the_written_files_load_as_a_chat_tokenizer(tmp_path: Path) -> None:
    write_tokenizer(GgufFile(TinyModel.random("llama").write(tmp_path / "tiny.gguf")), tmp_path)
    ids = ChatTokenizer.from_directory(tmp_path).encode_chat([{"role": "user", "content": "the <|im_end|>"}])
    assert ids.count(1) == ids.count(2) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}),
        ({"tokenizer__ggml__eot_token_id": 5}, {"bos_token_id": 1, "eos_token_id": [2, 5], "pad_token_id": 2}),
        ({"tokenizer__ggml__padding_token_id": 0}, {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}),
    ],
)
def test_every_way_to_end_a_turn_is_kept(tmp_path: Path, fields: dict[str, int], expected: dict[str, object]) -> None:
    assert token_ids(GgufFile(TinyModel.random("llama").write(tmp_path / "tiny.gguf", **fields))) == expected
