"""onnxruntime-genai's own generator, one sequence at a time: the oracle the continuous runner is held to."""

import json
from collections.abc import Sequence
from pathlib import Path

import workers.engine.runtime  # noqa: F401  # sets the environment before onnxruntime loads

import onnxruntime_genai  # isort: skip


class GenaiRunner:
    """A model directory served by `onnxruntime_genai`. Load it after forking, never before."""

    def __init__(self, directory: Path, intra_op_num_threads: int = 1) -> None:
        """Load `directory`; the thread count is explicit because genai's default counts the host's cores."""
        config = onnxruntime_genai.Config(str(directory))
        options = {"intra_op_num_threads": intra_op_num_threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = onnxruntime_genai.Model(config)

    def greedy(self, prompt_ids: Sequence[int], max_new_tokens: int) -> list[int]:
        """Return at most `max_new_tokens` most likely tokens; the end token is left out."""
        params = onnxruntime_genai.GeneratorParams(self._model)
        params.set_search_options(max_length=len(prompt_ids) + max_new_tokens, do_sample=False)
        generator = onnxruntime_genai.Generator(self._model, params)
        generator.append_tokens(list(prompt_ids))
        while not generator.is_done():
            generator.generate_next_token()
        return [int(token_id) for token_id in generator.get_sequence(0)[len(prompt_ids) :]]
