from pathlib import Path

import pytest

from shared.cpu import Cpu


@pytest.mark.parametrize(
    ("cpuinfo", "weight_range", "features"),
    [
        ("model name\t: A\nflags\t\t: fpu avx avx2 fma\n", 64, ("avx", "avx2", "fma")),
        ("flags\t: avx2 avx512f\n", 64, ("avx2", "avx512f")),
        ("flags\t: avx2 avx_vnni\n", 127, ("avx2", "avx_vnni")),
        ("flags\t: avx512_vnni\n\nprocessor : 1\nflags\t: avx2\n", 127, ("avx512_vnni",)),
        ("Features\t: fp asimd asimddp\n", 127, ("asimd", "asimddp")),
        ("Features\t: fp asimd\n", 64, ("asimd",)),
        ("", 64, ()),
    ],
)
def test_weight_range_follows_from_dot_product_instructions(
    tmp_path: Path, cpuinfo: str, weight_range: int, features: tuple[str, ...]
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    cpu = Cpu.detect(tmp_path / "cpuinfo")
    assert (cpu.weight_range, cpu.features) == (weight_range, features)


def test_eight_bit_weights_saturate_only_without_dot_product() -> None:
    assert Cpu("x86_64", "", frozenset({"avx2"})).saturates(8)
    assert not Cpu("x86_64", "", frozenset({"avx2"})).saturates(7)
    assert not Cpu("x86_64", "", frozenset({"avx_vnni"})).saturates(8)


def test_a_machine_without_cpuinfo_is_described_by_its_architecture(tmp_path: Path) -> None:
    cpu = Cpu.detect(tmp_path / "absent")
    assert cpu.architecture
    assert cpu.model == "unknown"


def test_the_range_without_dot_product_cannot_overflow_sixteen_bits() -> None:
    assert 2 * 255 * Cpu("", "", frozenset()).weight_range <= 32767
