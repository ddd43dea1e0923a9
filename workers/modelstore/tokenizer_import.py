"""Rebuilds `tokenizer.json` and `tokenizer_config.json` from the tokenizer fields of a GGUF file."""

import json
from collections.abc import Callable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from shared.errors import ModelUnsupportedError
from workers.modelstore.gguf_reader import GgufFile

_CONTROL, _USER_DEFINED = 3, 4

# Published with the models; `\p{N}` takes one digit at a time in Qwen 2 and up to three in Llama 3.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "qwen2": lambda: _split_by(_WORDS % r"\p{N}"),
    "llama-bpe": lambda: _split_by(_WORDS % r"\p{N}{1,3}"),
}
_CLASSES = {"qwen2": "Qwen2Tokenizer", "llama-bpe": "PreTrainedTokenizerFast"}


def _kind(file: GgufFile) -> str:
    model, kind = file.field("tokenizer.ggml.model"), file.field("tokenizer.ggml.pre")
    if model != "gpt2" or kind not in _PRE_TOKENIZERS:
        raise ModelUnsupportedError(
            f"tokenizer {model}/{kind} is not supported; supported: gpt2/{', gpt2/'.join(_PRE_TOKENIZERS)}"
        )
    return str(kind)


def build_tokenizer(file: GgufFile) -> Tokenizer:
    """Return the byte-level BPE tokenizer the file describes.

    Raises:
        ModelUnsupportedError: another kind of tokenizer (sentencepiece), or an unknown pre-tokenizer.
    """
    kind, tokens = _kind(file), file.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in file.field("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=kind == "llama-bpe"))
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[kind]()
    tokenizer.decoder = decoders.ByteLevel()
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    types = file.field("tokenizer.ggml.token_type")
    for wanted, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        added = [token for token, type_ in zip(tokens, types, strict=True) if type_ == wanted]
        tokenizer.add_tokens([AddedToken(token, special=special, normalized=False) for token in added])
    return tokenizer


def token_ids(file: GgufFile) -> dict[str, int | list[int]]:
    """Return `bos_token_id` (where there is one), `eos_token_id` (a list where turns end differently), `pad_token_id`.

    Raises:
        ModelUnsupportedError: the file names no end of text.
    """
    ids = {name: file.field(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "padding")}
    ends = list(dict.fromkeys(ids[name] for name in ("eos", "eot") if ids[name] is not None))
    if not ends:
        raise ModelUnsupportedError("the GGUF file names no end-of-text token; convert it with a current llama.cpp")
    found: dict[str, int | list[int]] = {} if ids["bos"] is None else {"bos_token_id": ids["bos"]}
    found["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    found["pad_token_id"] = ends[0] if ids["padding"] is None else ids["padding"]
    return found


def write_tokenizer(file: GgufFile, directory: Path) -> None:
    """Write both tokenizer files into `directory`; raises what `build_tokenizer` raises, or for a base model."""
    template = file.field("tokenizer.chat_template")
    if not template or not template.strip():
        raise ModelUnsupportedError("the GGUF file has no chat template; import an instruction-tuned model")
    build_tokenizer(file).save(str(directory / "tokenizer.json"))
    tokens = file.field("tokenizer.ggml.tokens")
    config = {"tokenizer_class": _CLASSES.get(_kind(file), "GPT2Tokenizer"), "chat_template": template}
    for name, value in token_ids(file).items():
        config[name.removesuffix("_id")] = tokens[value[0] if isinstance(value, list) else value]
    text = json.dumps(config, ensure_ascii=False, indent=1)
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")
