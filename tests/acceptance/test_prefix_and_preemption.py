"""On the real model: neither a reused prefix nor being set aside for an urgent job changes a token."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.sampling import SamplingParams
from workers.engine import Engine, EngineConfig, EngineStats, GenerationOutput, GenerationRequest
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

DATA = Path(__file__).parents[1] / "data"
REFERENCE: list[dict[str, Any]] = json.loads((DATA / "reference_smollm2.json").read_text(encoding="utf-8"))["greedy"]
LOW, HIGH = 6, 0
MAX_MODEL_LEN = 256


def requests() -> list[GenerationRequest]:
    """Two long jobs and, after them, four urgent ones; all but one begin with the same 130 tokens."""
    instruction = [token for case in REFERENCE for token in case["prompt_ids"]][:130]
    prompts = [instruction + case["prompt_ids"][:12] for case in REFERENCE[:5]] + [REFERENCE[5]["prompt_ids"][:20]]
    sampling = [{}, {"temperature": 0.9, "top_p": 0.95}] * 3
    return [
        GenerationRequest(
            id=str(index),
            prompt_ids=prompt,
            params=SamplingParams(max_tokens=24 if index < 2 else 5, seed=7, ignore_eos=True, **chosen),
            priority=LOW if index < 2 else HIGH,
        )
        for index, (prompt, chosen) in enumerate(zip(prompts, sampling, strict=True))
    ]


def generate(
    directory: Path, waves: Sequence[Sequence[GenerationRequest]], config: EngineConfig
) -> tuple[list[GenerationOutput], EngineStats]:
    """Submit each wave two steps after the one before it."""
    runner = ContinuousRunner(directory, RunnerConfig(config.max_num_seqs, MAX_MODEL_LEN, 1))
    engine = Engine(runner, lambda _: "", config)
    futures = []
    for wave in waves:
        futures += [engine.submit(request) for request in wave]
        for _ in range(2):
            engine.step()
    while not all(future.done() for future in futures):
        engine.step()
    stats = engine.stats()
    engine.close()
    return [future.result(0) for future in futures], stats


def test_reuse_and_preemption_change_no_token(model_dir_int8: Path) -> None:
    jobs = requests()
    plain = EngineConfig(1, admission_wait_s=0, prefix_cache_bytes=0)
    alone, _ = generate(model_dir_int8, [jobs], plain)
    busy, stats = generate(model_dir_int8, [jobs[:2], jobs[2:]], EngineConfig(2, admission_wait_s=0))
    assert stats.preemptions == 2
    assert stats.cached_tokens == sum(output.cached_tokens for output in busy) == 4 * 128
    assert [output.token_ids for output in busy] == [output.token_ids for output in alone]
