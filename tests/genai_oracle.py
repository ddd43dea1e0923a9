"""onnxruntime-genai as its own documentation uses it: what our runners are held to."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime_genai  # must follow the variable


class GenaiOracle:
    """One model in this process. Load it after forking, never before."""

    def __init__(self, directory: Path) -> None:
        config = onnxruntime_genai.Config(str(directory))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": 1}}}}))
        self.model = onnxruntime_genai.Model(config)

    def greedy(self, prompt_ids: Sequence[int], max_new_tokens: int) -> list[int]:
        """Return at most `max_new_tokens` most likely tokens; the end token is left out."""
        generator = self._generate(prompt_ids, max_length=len(prompt_ids) + max_new_tokens, do_sample=False)
        return [int(token_id) for token_id in generator.get_sequence(0)[len(prompt_ids) :]]

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Return `[vocab]`, what follows `ids`."""
        params = onnxruntime_genai.GeneratorParams(self.model)
        params.set_search_options(max_length=len(ids) + 1)
        generator = onnxruntime_genai.Generator(self.model, params)
        generator.append_tokens(list(ids))
        return np.asarray(generator.get_logits(), np.float32).reshape(-1)

    def _generate(self, prompt_ids: Sequence[int], **options: float) -> Any:  # noqa: ANN401  # genai ships no types
        params = onnxruntime_genai.GeneratorParams(self.model)
        params.set_search_options(**options)
        generator = onnxruntime_genai.Generator(self.model, params)
        generator.append_tokens(list(prompt_ids))
        while not generator.is_done():
            generator.generate_next_token()
        return generator
