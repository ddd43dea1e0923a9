"""An installed model whose tokenizer is real and small: one token per byte, ChatML. It has no weights."""

import json
from datetime import UTC, datetime
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from shared.model_manifest import CpuTarget, Manifest, Source
from shared.model_registry import activate

NAME = "tiny-chat"
VERSION = "v1"
CONTEXT = 256
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ["<|im_start|>", "<|im_end|>"]
# <|im_start|>user\n ... <|im_end|>\n<|im_start|>assistant\n
TOKENS_AROUND_A_PROMPT = 19


def tokenizer_json() -> str:
    vocab = {token: i for i, token in enumerate([*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return tokenizer.to_str()


def _manifest() -> Manifest:
    return Manifest(
        name=NAME,
        version=VERSION,
        files={},
        source=Source(kind="gguf", uri="file", sha256="0" * 64),
        architecture="llama",
        parameters=1,
        precision="fp32",
        weight_bits=32,
        context_length=CONTEXT,
        layers=1,
        kv_heads=1,
        head_size=8,
        vocab_size=258,
        kv_bytes_per_token=64,
        quality=None,
        cpu=CpuTarget(architecture="x86_64", features=(), weight_range=127),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        onnxruntime_version="1",
        importer_version=1,
    )


def install(model_dir: Path) -> None:
    path = model_dir / NAME / VERSION
    path.mkdir(parents=True)
    (path / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    config = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (path / "manifest.json").write_text(_manifest().model_dump_json(), encoding="utf-8")
    activate(NAME, VERSION, model_dir)
