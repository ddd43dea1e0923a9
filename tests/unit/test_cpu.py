from pathlib import Path

import pytest

from shared.cpu import Cpu


@pytest.mark.parametrize(
    ("cpuinfo", "has_dot_product", "features"),
    [
        ("model name\t: A\nflags\t\t: fpu avx avx2 fma\n", False, ("avx", "avx2", "fma")),
        ("flags\t: avx2 avx512f\n", False, ("avx2", "avx512f")),
        ("flags\t: avx2 avx_vnni\n", True, ("avx2", "avx_vnni")),
        ("flags\t: avx512_vnni\n\nprocessor : 1\nflags\t: avx2\n", True, ("avx512_vnni",)),
        ("Features\t: fp asimd asimddp\n", True, ("asimd", "asimddp")),
        ("Features\t: fp asimd\n", False, ("asimd",)),
        ("", False, ()),
    ],
)
def test_dot_product_instructions_are_found(
    tmp_path: Path, cpuinfo: str, *, has_dot_product: bool, features: tuple[str, ...]
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    cpu = Cpu.detect(tmp_path / "cpuinfo")
    assert (cpu.has_int8_dot_product, cpu.features) == (has_dot_product, features)


def test_a_machine_without_cpuinfo_is_described_by_its_architecture(tmp_path: Path) -> None:
    cpu = Cpu.detect(tmp_path / "absent")
    assert cpu.architecture
    assert cpu.model == "unknown"
