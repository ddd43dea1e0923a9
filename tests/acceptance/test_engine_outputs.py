"""The engine on the real model: the same tokens alone and together, and the same as onnxruntime-genai."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.sampling import SamplingParams
from shared.tokenizer import ChatTokenizer
from tests.genai_oracle import GenaiOracle
from workers.engine import Engine, GenerationOutput, GenerationRequest
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.engine.kv_cache import KvDtype

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

DATA = Path(__file__).parents[1] / "data"
REFERENCE: list[dict[str, Any]] = json.loads((DATA / "reference_smollm2.json").read_text(encoding="utf-8"))["greedy"]
EOS = 2


def mixed_prompts() -> list[list[int]]:
    """Sixteen prompts of 1 to 600 tokens: six real ones, and stretches of a text on both sides of the chunk borders."""
    text = [token for _ in range(4) for case in REFERENCE for token in case["prompt_ids"]]
    lengths = [1, 5, 90, 127, 128, 129, 200, 256, 257, 600]
    return [case["prompt_ids"] for case in REFERENCE] + [text[7 * n : 7 * n + size] for n, size in enumerate(lengths)]


def generate(
    directory: Path,
    jobs: Sequence[tuple[list[int], SamplingParams]],
    rows: int,
    max_model_len: int = 1024,
    kv_dtype: KvDtype = "int8",
) -> list[GenerationOutput]:
    decode = ChatTokenizer.from_directory(directory).decode
    runner = ContinuousRunner(directory, RunnerConfig(rows, max_model_len, 1, kv_dtype))
    with Engine(runner, decode) as engine:
        futures = [
            engine.submit(GenerationRequest(str(index), prompt, params)) for index, (prompt, params) in enumerate(jobs)
        ]
        return [future.result(500) for future in futures]


def tokens_and_text(outputs: Sequence[GenerationOutput]) -> list[tuple[tuple[int, ...], str, str]]:
    return [(output.token_ids, output.text, output.finish_reason) for output in outputs]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "top_p": 0.9, "seed": 11}], ids=["greedy", "seeded"])
def test_sixteen_mixed_prompts_are_the_same_alone_and_together(model_dir_int8: Path, sampling: dict[str, Any]) -> None:
    jobs = [
        (prompt, SamplingParams(max_tokens=6 + 5 * (index % 6), **sampling))
        for index, prompt in enumerate(mixed_prompts())
    ]
    alone = tokens_and_text(generate(model_dir_int8, jobs, rows=1))
    assert tokens_and_text(generate(model_dir_int8, jobs, rows=16)) == alone
    assert tokens_and_text(generate(model_dir_int8, jobs[::-1], rows=5))[::-1] == alone


def test_float32_is_equal_to_genai_and_to_the_reference(model_dir_fp32: Path) -> None:
    jobs = [(case["prompt_ids"], SamplingParams(max_tokens=len(case["greedy_ids"]))) for case in REFERENCE]
    outputs = generate(model_dir_fp32, jobs, rows=6, kv_dtype="float32")
    oracle = GenaiOracle(model_dir_fp32)
    for case, output in zip(REFERENCE, outputs, strict=True):
        expected = case["greedy_ids"]
        ended = [EOS] if output.finish_reason == "stop" else []
        assert [*output.token_ids, *ended] == expected
        assert oracle.greedy(case["prompt_ids"], len(expected)) == list(output.token_ids)
        assert output.text == case["greedy_text"]


def test_a_prompt_of_1024_tokens_is_served_and_equal_to_genai(model_dir_fp32: Path) -> None:
    question = REFERENCE[0]["prompt_ids"]
    prompt = (mixed_prompts()[-1] * 2)[: 1024 - len(question)] + question
    (output,) = generate(model_dir_fp32, [(prompt, SamplingParams(max_tokens=8))], 1, 1032, "float32")
    assert (output.prompt_tokens, output.completion_tokens) == (1024, 8)
    assert list(output.token_ids) == GenaiOracle(model_dir_fp32).greedy(prompt, 8)


def test_a_stop_string_ends_the_text_before_it(model_dir_int8: Path) -> None:
    case = REFERENCE[0]
    whole, cut = generate(
        model_dir_int8,
        [
            (case["prompt_ids"], SamplingParams(max_tokens=40)),
            (case["prompt_ids"], SamplingParams(max_tokens=40, stop=(" quantum m",))),
        ],
        rows=2,
    )
    position = whole.text.find(" quantum m")
    assert position < 0 or (cut.text, cut.finish_reason) == (whole.text[:position], "stop")


def test_the_command_line_answers_without_any_server_and_writes_no_telemetry(
    model_dir_int8: Path, tmp_path: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "workers.engine", str(model_dir_int8), "List five fruits."],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "1. " in run.stdout
    assert "finish reason stop" in run.stderr
    assert not (tmp_path / ".cache" / "Microsoft").exists()
