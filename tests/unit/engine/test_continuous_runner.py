"""The runner on tiny models of every family, held to a plain forward pass in numpy."""

import json
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from shared.errors import ConfigurationError, ModelUnsupportedError
from tests.unit.modelstore.tiny_model import TinyModel
from workers.engine.continuous_runner import ContinuousRunner, RunnerConfig
from workers.engine.model_runner import RowTokens
from workers.modelstore.gguf_import import convert_gguf
from workers.modelstore.gguf_reader import GgufFile
from workers.modelstore.graph import save

FAMILIES = [("llama", True), ("llama", False), ("qwen2", True), ("qwen3", False)]
IDS = [5, 3, 8, 1, 9, 2, 7, 7, 4, 6]


def model_directory(folder: Path, architecture: str = "llama", *, tied: bool = True) -> tuple[TinyModel, Path]:
    model = TinyModel.random(architecture, tied=tied)
    convert_gguf(GgufFile(model.write(folder / "model.gguf")), folder / "model")
    return model, folder / "model"


@contextmanager
def running(directory: Path, **options: object) -> Iterator[ContinuousRunner]:
    runner = ContinuousRunner(directory, RunnerConfig(4, 64, **({"kv_dtype": "float32"} | options)))  # type: ignore[arg-type]
    yield runner
    runner.close()


@pytest.mark.parametrize(("architecture", "tied"), FAMILIES)
def test_logits_are_those_of_the_plain_forward_pass(tmp_path: Path, architecture: str, *, tied: bool) -> None:
    model, directory = model_directory(tmp_path, architecture, tied=tied)
    expected = model.logits(IDS)
    with running(directory) as runner:
        every = runner.execute([RowTokens(1, (token,), position) for position, token in enumerate(IDS)])
        np.testing.assert_allclose(every, expected, atol=2e-3)
        np.testing.assert_allclose(runner.execute([RowTokens(2, IDS, 0)]), expected[-1:], atol=2e-3)


@pytest.mark.parametrize("kv_dtype", ["int8", "float32"])
def test_a_pass_of_prompts_and_decode_rows_gives_each_what_it_gets_alone(tmp_path: Path, kv_dtype: str) -> None:
    _, directory = model_directory(tmp_path)
    with running(directory, kv_dtype=kv_dtype) as runner:
        alone = [runner.execute([RowTokens(0, IDS, 0)]).copy(), runner.execute([RowTokens(1, IDS[:3], 0)]).copy()]
        alone.append(runner.execute([RowTokens(1, [4], 3)]).copy())
        runner.execute([RowTokens(3, IDS[:3], 0)])
        work = [RowTokens(3, (4,), 3), RowTokens(2, IDS[:3], 0, wants_logits=False), RowTokens(0, IDS, 0)]
        mixed = runner.execute(work).copy()
        assert runner.execute([RowTokens(2, (4,), 3)]).shape == (1, runner.vocab_size)
    np.testing.assert_allclose(mixed, np.concatenate([alone[2], alone[0]]), rtol=1e-4, atol=1e-4)


def test_a_chunk_whose_logits_nobody_wants_computes_none(tmp_path: Path) -> None:
    _, directory = model_directory(tmp_path)
    with running(directory) as runner:
        assert runner.execute([RowTokens(0, IDS, 0, wants_logits=False)]).shape == (0, runner.vocab_size)


def test_shared_files_compute_the_same_and_are_written_once(tmp_path: Path) -> None:
    _, directory = model_directory(tmp_path)
    packed = tmp_path / "packed"
    with running(directory) as runner:
        expected = runner.execute([RowTokens(0, IDS, 0)]).copy()
    for _ in range(2):
        with running(directory, packed_dir=packed) as runner:
            assert (runner.execute([RowTokens(0, IDS, 0)]) == expected).all()
    (folder,) = [path for path in packed.iterdir() if path.is_dir()]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_shared_files_of_an_older_model_and_of_crashes_are_removed(tmp_path: Path) -> None:
    _, directory = model_directory(tmp_path)
    packed = tmp_path / "packed"
    with running(directory, packed_dir=packed):
        (packed / "packing-crashed").mkdir()
    (directory / "genai_config.json").touch()
    with running(directory, packed_dir=packed):
        assert len([path for path in packed.iterdir() if path.is_dir()]) == 1


def test_a_worker_starts_without_sharing_where_it_cannot_write(tmp_path: Path) -> None:
    _, directory = model_directory(tmp_path)
    (tmp_path / "file").touch()
    with running(directory, packed_dir=tmp_path / "file" / "packed") as runner:
        assert runner.execute([RowTokens(0, IDS, 0)]).shape == (1, runner.vocab_size)


def _attention(model: onnx.ModelProto) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")


def with_softcap(model: onnx.ModelProto) -> None:
    _attention(model).attribute.append(helper.make_attribute("softcap", 30.0))


def with_foreign_past(model: onnx.ModelProto) -> None:
    _attention(model).input[3] = "past_key_values.1.key"


def with_window(model: onnx.ModelProto) -> None:
    next(a for a in _attention(model).attribute if a.name == "local_window_size").i = 128


def with_one_layer_less(model: onnx.ModelProto) -> None:
    _attention(model).op_type = "MultiHeadAttention"


def with_masked_hidden(model: onnx.ModelProto) -> None:
    lookup = next(node for node in model.graph.node if node.output[0] == "embeddings")
    lookup.input[1] = "attention_mask"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_softcap, "softcap"),
        (with_foreign_past, "inputs this runner does not know"),
        (with_window, "local_window_size"),
        (with_one_layer_less, "1 GroupQueryAttention operators for 2 layers"),
        (with_masked_hidden, "outside of attention"),
    ],
)
def test_other_graphs_are_refused_with_the_reason(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], reason: str
) -> None:
    _, directory = model_directory(tmp_path)
    model = onnx.load(directory / "model.onnx")
    change(model)
    save(model, directory)
    with pytest.raises(ModelUnsupportedError, match=reason):
        ContinuousRunner(directory, RunnerConfig(1, 32))


@pytest.mark.parametrize(("ids", "position"), [([-1], 0), ([10_000], 0), ([1], 64), ([1] * 65, 0), ([1], -1)])
def test_ids_and_positions_out_of_range_never_reach_the_kernels(tmp_path: Path, ids: list[int], position: int) -> None:
    _, directory = model_directory(tmp_path)
    with running(directory) as runner, pytest.raises(ValueError, match="out of range"):
        runner.execute([RowTokens(0, ids, position)])


def test_a_cache_larger_than_the_free_memory_is_refused(tmp_path: Path) -> None:
    _, directory = model_directory(tmp_path)
    with pytest.raises(ConfigurationError, match="max_num_seqs"):
        ContinuousRunner(directory, RunnerConfig(100_000_000, 64))


def test_a_configuration_that_differs_from_the_graph_is_refused(tmp_path: Path) -> None:
    _, directory = model_directory(tmp_path)
    path = directory / "genai_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model"]["decoder"]["head_size"] = 8
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelUnsupportedError, match="gets 128 channels, not 64"):
        ContinuousRunner(directory, RunnerConfig(1, 32))
