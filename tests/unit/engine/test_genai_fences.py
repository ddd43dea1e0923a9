"""What keeps onnxruntime-genai within its bounds: memory, threads, context, a graph it cannot load."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from shared.errors import GenerationFailedError, InvalidInputError, ModelUnsupportedError, PromptTooLongError
from shared.sampling import SamplingParams
from tests.tiny_genai import TinyGenai
from workers.engine.genai_engine import GenaiConfig, GenaiEngine
from workers.engine.genai_model_info import GenaiModelInfo
from workers.engine.sequence import GenerationRequest

PROMPT = [4, 5, 6, 7]


def decode(ids: Sequence[int]) -> str:
    return "x" * len(ids)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return TinyGenai.random().write(tmp_path / "tiny")


def test_what_never_fits_the_memory_is_refused_with_numbers(directory: Path) -> None:
    TinyGenai.random().write(directory, context=1_000_000)
    with (
        GenaiEngine(directory, decode, GenaiConfig(max_model_len=1_000_000)) as engine,
        pytest.raises(InvalidInputError, match=r"16 beams of 900004 tokens take \d+ MiB and this host has \d+"),
    ):
        engine.submit(GenerationRequest("big", PROMPT, SamplingParams(max_tokens=900_000, num_beams=16)))


def test_what_does_not_fit_now_is_tried_again_later(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Full:
        available: int = 1000
        total: int = 1 << 40

    monkeypatch.setattr(psutil, "virtual_memory", Full)
    request = GenerationRequest("job", PROMPT, SamplingParams(max_tokens=5, num_beams=2))
    needs = r"a beam search of 2 x 9 tokens takes \d+ MiB and 0 MiB are free"
    with GenaiEngine(directory, decode) as engine, pytest.raises(GenerationFailedError, match=needs):
        engine.submit(request).result(30)


@pytest.mark.parametrize("beams", [1, 2])
def test_a_prompt_longer_than_the_row_is_refused(directory: Path, beams: int) -> None:
    request = GenerationRequest("job", [4] * 250, SamplingParams(max_tokens=7, num_beams=beams))
    with (
        GenaiEngine(directory, decode, GenaiConfig(max_model_len=256)) as engine,
        pytest.raises(PromptTooLongError),
    ):
        engine.submit(request)


def test_a_model_never_crosses_from_its_short_to_its_long_rotary_tables(directory: Path) -> None:
    TinyGenai.random().write(directory, context=131072)
    config = directory / "genai_config.json"
    assert GenaiModelInfo.read(directory).context_length == 131072
    config.write_text(config.read_text(encoding="utf-8").replace('"llama"', '"phi3"'), encoding="utf-8")
    assert GenaiModelInfo.read(directory).context_length == 4096


def test_a_model_that_genai_cannot_load_is_named_unsupported(directory: Path) -> None:
    (directory / "model.onnx").write_bytes(b"no graph")
    with GenaiEngine(directory, decode) as engine:
        for submit in (engine.load, lambda: engine.submit(GenerationRequest("a", PROMPT)).result(30)):
            with pytest.raises(ModelUnsupportedError, match="cannot run"):
                submit()


def thread_count(engine: GenaiEngine) -> int:
    return len(list(Path(f"/proc/{engine.process.pid}/task").iterdir()))


def test_threads_are_as_many_as_asked_and_telemetry_stays_off(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    with GenaiEngine(directory, decode) as one, GenaiEngine(directory, decode, GenaiConfig(2048, 3)) as three:
        one.load()
        three.load()
        assert thread_count(three) == thread_count(one) + 2
    assert not (tmp_path / "home" / ".cache").exists()


def test_the_worker_never_loads_genai_itself() -> None:
    script = "import sys, workers.engine.router, workers.loaded_model; sys.exit('onnxruntime_genai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
