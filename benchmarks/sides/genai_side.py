"""onnxruntime-genai's generator: static batches for the curves, one job at a time for workloads, as users run it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
from numpy.typing import NDArray

from benchmarks.sides.measurement import WARM_UP_STEPS, Clock, Figures, perplexity_of
from benchmarks.workloads import curve_prompts
from benchmarks.workloads import workload as named_workload


class GenaiSide:
    """A `Measurer` over `og.Generator`."""

    def __init__(self, directory: Path) -> None:
        """Load the model directory with one thread."""
        config = og.Config(str(directory))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": 1}}}}))
        self._model = og.Model(config)
        self.version = f"onnxruntime-genai {og.__version__}"

    def curve(self, *, rows: int, tokens: int, steps: int) -> Figures:
        """See `Measurer`."""
        prompts = np.asarray(curve_prompts(rows, tokens), np.int32)
        generator = self._generator(rows, tokens + WARM_UP_STEPS + steps + 2)
        clock = Clock()
        generator.append_tokens(prompts)
        generator.generate_next_token()
        figures = {"prefill": rows * tokens / clock.cpu_s}
        if steps:
            for _ in range(WARM_UP_STEPS):
                generator.generate_next_token()
            clock = Clock()
            for _ in range(steps):
                generator.generate_next_token()
            figures["decode"] = rows * steps / clock.cpu_s
        return figures

    def jobs(self, *, workload: str, count: int, max_num_seqs: int, prefix_cache: bool = False) -> Figures:
        """See `Measurer`; `max_num_seqs` must be 1."""
        if max_num_seqs != 1 or prefix_cache:
            raise ValueError("onnxruntime-genai runs workloads one job at a time and has no prefix cache")
        jobs = named_workload(workload, count)
        clock = Clock()
        for job in jobs:
            generator = self._generator(1, len(job.prompt_ids) + job.max_tokens)
            generator.append_tokens(np.asarray(job.prompt_ids, np.int32))
            for _ in range(job.max_tokens):
                generator.generate_next_token()
        return clock.job_figures(count)

    def perplexity(self, *, token_ids: list[int]) -> Figures:
        """See `Measurer`."""
        return perplexity_of(token_ids, self._logits(token_ids))

    def _logits(self, token_ids: list[int]) -> Iterator[NDArray[np.float32]]:
        generator = self._generator(1, len(token_ids) + 1)
        for token_id in token_ids[:-1]:
            generator.append_tokens(np.asarray([token_id], np.int32))
            yield np.asarray(generator.get_logits()).reshape(-1)

    def _generator(self, rows: int, length: int) -> Any:  # noqa: ANN401  # onnxruntime-genai ships no types
        params = og.GeneratorParams(self._model)
        # min_length keeps end-of-text out.
        params.set_search_options(batch_size=rows, max_length=length, min_length=length, do_sample=False)
        return og.Generator(self._model, params)


def open_side(model: Path) -> GenaiSide:
    """Return the side, loaded."""
    return GenaiSide(model)
