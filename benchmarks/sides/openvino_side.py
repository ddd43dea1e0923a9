"""OpenVINO GenAI's continuous batching pipeline, reading the GGUF file itself.

Measured on AVX2 without VNNI, its decode speed does not depend on the weights (the file's 4 bits, NNCF int8, float32),
on the dynamic quantisation group or on the KV precision: what is set here are its own defaults, spelled out.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import openvino  # type: ignore[import-not-found]  # installed in the peers' environment only
import openvino_genai  # type: ignore[import-not-found]  # as above

from benchmarks.sides.measurement import WARM_UP_STEPS, Clock, Figures, perplexity_of
from benchmarks.workloads import curve_prompts, output_tokens
from benchmarks.workloads import workload as named_workload

PROPERTIES = {"INFERENCE_NUM_THREADS": 1, "KV_CACHE_PRECISION": "u8"}
CACHE_GB = 4
MAX_NUM_BATCHED_TOKENS = 512
CURVE_MAX_NUM_SEQS = 64
# Kernels are made at the first prompt of a size: six times the time. Longer curves do not notice.
MAX_UNTIMED_TOKENS = 2500


class OpenVinoSide:
    """A `Measurer`. The pipeline is built anew when another number of sequences is asked for."""

    def __init__(self, model: Path) -> None:
        """Take a GGUF file or a directory with an OpenVINO model."""
        self.version = f"openvino-genai {openvino_genai.get_version()}"
        self._model = model
        self._built: tuple[tuple[int, bool], Any] | None = None
        self._ids = 0
        self._seen: set[int] = set()

    def curve(self, *, rows: int, tokens: int, steps: int) -> Figures:
        """See `Measurer`. Rows whose prompt is done decode beside the other prompts: such tokens count as prefill."""
        pipeline = self._pipeline(CURVE_MAX_NUM_SEQS, prefix_cache=False)
        if rows * tokens not in self._seen and rows * tokens <= MAX_UNTIMED_TOKENS:
            self._seen.add(rows * tokens)
            self.curve(rows=rows, tokens=tokens, steps=1)
        room = WARM_UP_STEPS + steps + 2 * (rows * tokens // MAX_NUM_BATCHED_TOKENS + 2)
        handles = [self._add(pipeline, prompt, room) for prompt in curve_prompts(rows, tokens)]
        figures: Figures = {}
        clock, generated = Clock(), [0] * rows
        while not all(generated):
            pipeline.step()
            generated = [before + _new_tokens(handle) for before, handle in zip(generated, handles, strict=True)]
        early = sum(generated) - rows
        figures["prefill"] = (rows * tokens + early) / clock.cpu_s
        if steps:
            for _ in range(WARM_UP_STEPS):
                pipeline.step()
            clock = Clock()
            for _ in range(steps):
                pipeline.step()
            figures["decode"] = rows * steps / clock.cpu_s
        for handle in handles:
            handle.cancel()
        while pipeline.has_non_finished_requests():
            pipeline.step()
        return figures

    def jobs(self, *, workload: str, count: int, max_num_seqs: int, prefix_cache: bool = False) -> Figures:
        """See `Measurer`."""
        pipeline = self._pipeline(max_num_seqs, prefix_cache=prefix_cache)
        jobs = named_workload(workload, count)
        clock = Clock()
        handles = [self._add(pipeline, job.prompt_ids, job.max_tokens) for job in jobs]
        while pipeline.has_non_finished_requests():
            pipeline.step()
        figures = clock.job_figures(count)
        generated = sum(len(handle.read_all()[0].generated_ids) for handle in handles)
        if generated != output_tokens(jobs):
            raise RuntimeError(f"{generated} tokens came back instead of {output_tokens(jobs)}")
        return figures

    def perplexity(self, *, token_ids: list[int]) -> Figures:
        """See `Measurer`. Its pipelines keep logits to themselves, so the graph it makes of the file is run alone."""
        model = openvino.compile_model(self._graph(), "CPU", PROPERTIES)
        positions = np.arange(len(token_ids), dtype=np.int64)[None]
        inputs = {
            "input_ids": np.asarray(token_ids, np.int64)[None],
            "attention_mask": np.ones_like(positions),
            "position_ids": positions,
            "beam_idx": np.zeros(1, np.int32),
        }
        return perplexity_of(token_ids, model(inputs)["logits"][0])

    def _graph(self) -> Any:  # noqa: ANN401  # openvino ships no complete types
        if self._model.is_dir():
            return openvino.Core().read_model(self._model / "openvino_model.xml")
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "model.gguf"
            copy.symlink_to(self._model)
            openvino_genai.LLMPipeline(str(copy), "CPU", enable_save_ov_model=True, **PROPERTIES)
            model = openvino.Core().read_model(copy.with_name("openvino_model.xml"))
            return model.clone()

    def _pipeline(self, max_num_seqs: int, *, prefix_cache: bool) -> Any:  # noqa: ANN401  # as above
        key = (max_num_seqs, prefix_cache)
        if self._built is None or self._built[0] != key:
            self._built = None  # frees the old KV cache first
            scheduler = openvino_genai.SchedulerConfig()
            scheduler.max_num_seqs = max_num_seqs
            scheduler.max_num_batched_tokens = MAX_NUM_BATCHED_TOKENS
            scheduler.cache_size = CACHE_GB
            scheduler.enable_prefix_caching = prefix_cache
            pipeline = openvino_genai.ContinuousBatchingPipeline(str(self._model), scheduler, "CPU", PROPERTIES)
            self._warm_up(pipeline)
            self._built = key, pipeline
        return self._built[1]

    def _warm_up(self, pipeline: Any) -> None:  # noqa: ANN401  # as above
        for row in range(4):
            self._add(pipeline, [400 + row] * 128, 8)
        while pipeline.has_non_finished_requests():
            pipeline.step()

    def _add(self, pipeline: Any, prompt: list[int] | tuple[int, ...], max_tokens: int) -> Any:  # noqa: ANN401  # as above
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
        self._ids += 1
        return pipeline.add_request(self._ids, openvino.Tensor(np.asarray(prompt, np.int64)[None]), config)


def _new_tokens(handle: Any) -> int:  # noqa: ANN401  # openvino-genai ships no complete types
    return sum(len(output.generated_ids) for output in handle.read().values()) if handle.can_read() else 0


def open_side(model: Path) -> OpenVinoSide:
    """Return the side; the pipeline is built by the first measurement."""
    return OpenVinoSide(model)
