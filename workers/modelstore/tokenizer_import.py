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


# Mistral NeMo's: words end where lower case is followed by upper case, and slashes go with punctuation.
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CASED_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _llama() -> pre_tokenizers.PreTokenizer:
    return _split_by(_WORDS % r"\p{N}{1,3}")


def _qwen() -> pre_tokenizers.PreTokenizer:
    return _split_by(_WORDS % r"\p{N}")


def _undeclared() -> pre_tokenizers.PreTokenizer:
    """What llama.cpp does with `default`: punctuation by itself, then GPT-2's words, numbers in threes."""
    parts = [r"[\p{P}\$\+<=>\^~\|]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"]
    splits = [pre_tokenizers.Split(Regex(part), "isolated") for part in (*parts, r"\p{N}+", "[0-9][0-9][0-9]")]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# Names as llama.cpp writes them; those on one line cut alike.
_PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "default": _undeclared,
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "jais", "phi-2"), _gpt2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _smollm),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), _qwen),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "smaug-bpe", "dbrx"), _llama),
    "tekken": lambda: _split_by(_CASED_WORDS),
}
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"})
_CLASSES = {_qwen: "Qwen2Tokenizer", _gpt2: "GPT2Tokenizer", _smollm: "GPT2Tokenizer", _undeclared: "GPT2Tokenizer"}


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
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=kind in _WHOLE_WORDS_FIRST))
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
    config = {
        "tokenizer_class": _CLASSES.get(_PRE_TOKENIZERS[_kind(file)], "PreTrainedTokenizerFast"),
        "chat_template": template,
    }
    for name, value in token_ids(file).items():
        config[name.removesuffix("_id")] = tokens[value[0] if isinstance(value, list) else value]
    text = json.dumps(config, ensure_ascii=False, indent=1)
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")
