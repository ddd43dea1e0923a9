"""onnxruntime-genai in its child, on the real model."""

import hashlib
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from shared.model_manifest import FileDigest
from shared.model_registry import ModelVersion
from shared.sampling import SamplingParams
from shared.settings import Settings
from shared.tokenizer import ChatTokenizer
from tests.beam_reference import BeamReference
from tests.genai_oracle import GenaiOracle
from workers.engine.genai_engine import GenaiEngine
from workers.engine.genai_runner import GenaiRunner
from workers.engine.sequence import GenerationRequest
from workers.loaded_model import LoadedModel

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

DATA = Path(__file__).parents[1] / "data"
CASES: list[dict[str, Any]] = json.loads((DATA / "reference_smollm2.json").read_text(encoding="utf-8"))["greedy"]
EOS = 2
TICK_S = 0.01


def test_rows_and_beams_are_those_of_the_reference(model_dir_fp32: Path) -> None:
    oracle, prompt = GenaiOracle(model_dir_fp32), CASES[0]["prompt_ids"]
    decode = ChatTokenizer.from_directory(model_dir_fp32).decode
    reference = BeamReference(oracle.logits, EOS, beams=3, max_tokens=5).search(prompt)
    with GenaiEngine(model_dir_fp32, decode) as engine:
        row = engine.submit(GenerationRequest("row", prompt, SamplingParams(max_tokens=12))).result(120)
        params = SamplingParams(max_tokens=5, num_beams=3, n=3)
        best = engine.submit(GenerationRequest("beams", prompt, params)).result(120)
    assert list(row.token_ids) == oracle.greedy(prompt, 12) == CASES[0]["greedy_ids"][:12]
    assert [list(output.token_ids) for output in (best, *best.alternatives)] == reference


class Heart:
    """A thread that beats as long as this lives, and notes its longest pause."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(TICK_S):
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now


def test_the_heart_goes_on_beating_while_a_long_prompt_is_computed(model_dir_fp32: Path) -> None:
    prompt = np.resize(CASES[0]["prompt_ids"], 250).tolist()
    params = SamplingParams(max_tokens=2, num_beams=2)
    with GenaiEngine(model_dir_fp32, lambda _: "") as engine:
        engine.load()
        with Heart() as heart:
            output = engine.submit(GenerationRequest("long", prompt, params)).result(120)
    assert heart.longest_s < output.prefill_s / 4


def without_shared_buffers(source: Path, target: Path) -> ModelVersion:
    """Copy a model version and change what makes the continuous runner refuse it."""
    shutil.copytree(source, target)
    config = target / "genai_config.json"
    text = config.read_text(encoding="utf-8").replace(
        '"past_present_share_buffer": true', '"past_present_share_buffer": false'
    )
    config.write_text(text, encoding="utf-8")
    version = ModelVersion.load(target)
    digest = FileDigest(sha256=hashlib.sha256(text.encode()).hexdigest(), bytes=len(text.encode()))
    files = {**version.manifest.files, config.name: digest}
    return ModelVersion(version.name, version.version, target, version.manifest.model_copy(update={"files": files}))


def test_a_model_the_continuous_runner_refuses_is_loaded_and_served(model_dir_int4: Path, tmp_path: Path) -> None:
    version = without_shared_buffers(model_dir_int4, tmp_path / "copy")
    settings = Settings(max_num_seqs=2, max_model_len=128, prefix_cache_mb=0, kv_swap_mb=0)
    engine = LoadedModel.load(version, settings, threads=1).engine
    try:
        engine.start()
        assert isinstance(engine.runner, GenaiRunner)
        request = GenerationRequest("job", CASES[0]["prompt_ids"], SamplingParams(max_tokens=4, logprobs=True))
        output = engine.submit(request).result(60)
        assert output.completion_tokens == 4
        assert len(output.logprobs or ()) == 4
        assert engine.stats().on_genai
    finally:
        engine.close()
