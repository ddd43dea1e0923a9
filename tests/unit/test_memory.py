from pathlib import Path

import psutil
import pytest

from shared.errors import ConfigurationError
from shared.memory import MIB, available_bytes, total_bytes
from shared.model_registry import resolve_name
from shared.settings import Settings
from shared.worker_memory import PROCESS_BYTES, WorkerMemory
from tests import fake_model
from workers.engine.kv_cache import KvCache, KvShape

WORKER = WorkerMemory(weights=200 * MIB, kv=300 * MIB, caches=100 * MIB)
TOTAL = 600 + (PROCESS_BYTES >> 20)


def group(folder: Path, limit: str, used: int, cache: int = 0, *, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    prefix = "" if version == 2 else "total_"
    (folder / "memory.stat").write_text(f"anon 5\n{prefix}inactive_file {cache}\n")


def own_groups(tmp_path: Path, line: str) -> Path:
    (tmp_path / "own").write_text(f"1:cpu:/x\n{line}\n")
    return tmp_path / "own"


def test_the_tightest_group_around_the_process_counts(tmp_path: Path) -> None:
    group(tmp_path / "root" / "a" / "b", "max", 10)
    group(tmp_path / "root" / "a", str(40 * MIB), 30 * MIB, 5 * MIB)
    own = own_groups(tmp_path, "0::/a/b")
    assert available_bytes(tmp_path / "root", own) == 15 * MIB
    assert total_bytes(tmp_path / "root", own) == 40 * MIB


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    group(tmp_path / "root" / "memory" / "c", str(64 * MIB), 60 * MIB, MIB, version=1)
    assert available_bytes(tmp_path / "root", own_groups(tmp_path, "4:memory:/c")) == 5 * MIB


def test_a_path_of_the_host_falls_back_to_what_the_container_sees(tmp_path: Path) -> None:
    group(tmp_path / "root", str(8 * MIB), 3 * MIB)
    assert available_bytes(tmp_path / "root", own_groups(tmp_path, "0::/docker/0123")) == 5 * MIB


@pytest.mark.parametrize("line", ["0::/", "no such file"])
def test_without_a_limit_it_is_what_the_machine_has(tmp_path: Path, line: str) -> None:
    own = own_groups(tmp_path, line) if "::" in line else tmp_path / "absent"
    assert total_bytes(tmp_path, own) == psutil.virtual_memory().total
    assert 0 < available_bytes(tmp_path, own) <= total_bytes(tmp_path, own)


def test_a_full_group_leaves_nothing(tmp_path: Path) -> None:
    group(tmp_path / "root", str(MIB), 2 * MIB)
    assert available_bytes(tmp_path / "root", own_groups(tmp_path, "0::/")) == 0


def test_what_does_not_fit_is_refused_with_numbers_and_the_setting_to_lower() -> None:
    message = rf"up to {TOTAL} MiB \(weights 200, KV cache 300, .*worker_memory_mb allows 700 MiB;.*lower max_num_seqs"
    with pytest.raises(ConfigurationError, match=message) as refused:
        WORKER.limit(Settings(worker_memory_mb=700), workers=2)
    assert refused.value.field == "worker_memory_mb"
    assert WORKER.limit(Settings(worker_memory_mb=TOTAL), workers=2) == TOTAL * MIB
    hoarder = WorkerMemory(weights=0, kv=MIB, caches=900 * MIB)
    with pytest.raises(ConfigurationError, match="lower prefix_cache_mb or kv_swap_mb"):
        hoarder.limit(Settings(worker_memory_mb=100), workers=1)


def test_by_default_it_is_a_share_of_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.worker_memory.total_bytes", lambda: 100_000 * MIB)
    monkeypatch.setattr("shared.worker_memory.available_bytes", lambda: 50_000 * MIB)
    assert WORKER.limit(Settings(), workers=10) == 9_000 * MIB
    assert WORKER.limit(Settings(), workers=1000) == round(1.3 * WORKER.total)
    monkeypatch.setattr("shared.worker_memory.available_bytes", lambda: 800 * MIB)
    with pytest.raises(ConfigurationError, match="the memory free is 800 MiB; lower max_num_seqs"):
        WORKER.limit(Settings(), workers=10)


def test_the_plan_agrees_with_the_cache_that_is_allocated(tmp_path: Path) -> None:
    fake_model.install(tmp_path)
    manifest = resolve_name(fake_model.NAME, tmp_path).manifest
    shaped = manifest.model_copy(update={"layers": 3, "kv_heads": 2, "head_size": 16, "kv_bytes_per_token": 768})
    shape = KvShape(3, 2, 16)
    for dtype in ("int8", "float32"):
        settings = Settings(max_num_seqs=4, max_model_len=256, kv_cache_dtype=dtype, prefix_cache_mb=7, kv_swap_mb=1)
        planned = WorkerMemory.planned(shaped, settings)
        assert planned.kv == KvCache(shape, dtype, 4, 256).nbytes
        assert planned.caches == 8 * MIB
