"""LoRA adapters of a model version: `adapters/<name>.onnx_adapter` beside its graph."""

from pathlib import Path

from shared.errors import InvalidInputError

ADAPTER_DIR = "adapters"
ADAPTER_SUFFIX = ".onnx_adapter"


def adapter_names(version: Path) -> list[str]:
    """Return the names of the adapters in the model directory `version`, sorted."""
    return sorted(path.name.removesuffix(ADAPTER_SUFFIX) for path in (version / ADAPTER_DIR).glob(f"*{ADAPTER_SUFFIX}"))


def adapter_file(version: Path, name: str) -> Path:
    """Return the file of the adapter `name`.

    Raises:
        InvalidInputError: there is none; the message lists those present.
    """
    present = adapter_names(version)
    if name not in present:
        known = ", ".join(present) or "none"
        raise InvalidInputError(
            f"the model has no such adapter; present: {known}. Name one of these, or put NAME{ADAPTER_SUFFIX} into the"
            f" directory {ADAPTER_DIR} beside its graph",
            field="sampling.adapter",
        )
    return version / ADAPTER_DIR / f"{name}{ADAPTER_SUFFIX}"
