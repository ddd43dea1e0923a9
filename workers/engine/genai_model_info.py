"""What `genai_config.json` says about a model that onnxruntime-genai itself runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shared.errors import ModelUnsupportedError
from workers.engine.decoder_config import CONFIG_FILE

FLOAT_BYTES = 4
# Phi-3 changes its rotary tables here; genai then computes the whole sequence anew, but only for one greedy sequence.
LAST_TOKEN_OF_SHORT_ROPE = {"phi3": 4096, "phimoe": 4096, "phi3small": 8196}
# Concatenating past and new KV, reordering it by beam and the arena's growth: 4.3 times the KV at 8 beams.
BEAM_KV_COPIES = 5


@dataclass(frozen=True, slots=True)
class GenaiModelInfo:
    """Names nothing of the graph: genai reads the same file for that. `context_length` is what may be used of it."""

    directory: Path
    context_length: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    kv_bytes_per_token: int

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read `directory`/genai_config.json.

        Raises:
            ModelUnsupportedError: the file is missing or malformed.
        """
        try:
            return cls._from_json(directory, json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))["model"])
        except FileNotFoundError as error:
            raise ModelUnsupportedError(
                f"{directory.name} has no {CONFIG_FILE}; give an onnxruntime-genai model directory"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise ModelUnsupportedError(f"{directory.name}/{CONFIG_FILE} is malformed: {error!r}") from error

    @classmethod
    def _from_json(cls, directory: Path, model: dict[str, Any]) -> Self:
        decoder, eos = model["decoder"], model["eos_token_id"]
        context, limit = int(model["context_length"]), LAST_TOKEN_OF_SHORT_ROPE.get(model["type"])
        heads = decoder.get("num_key_value_heads", decoder["num_attention_heads"])
        return cls(
            directory=directory,
            context_length=context if limit is None else min(context, limit),
            vocab_size=int(model["vocab_size"]),
            eos_token_ids=frozenset(eos if isinstance(eos, list) else [eos]),
            kv_bytes_per_token=2 * decoder["num_hidden_layers"] * heads * decoder["head_size"] * FLOAT_BYTES,
        )

    @property
    def file_bytes(self) -> int:
        """Bytes of the model's files, about what a process that loads it takes."""
        return sum(path.stat().st_size for path in self.directory.iterdir() if path.is_file())

    def beam_bytes(self, beams: int, prompt: int, max_tokens: int) -> int:
        """Return the memory of one beam search at its peak.

        Genai reserves room for a finished hypothesis of every length per beam, so the second term grows with the
        square of the length.
        """
        length = prompt + max_tokens
        kv = BEAM_KV_COPIES * beams * length * self.kv_bytes_per_token
        hypotheses = beams * length * (length + 1) // 2 * FLOAT_BYTES
        return kv + hypotheses + beams * self.vocab_size * FLOAT_BYTES
