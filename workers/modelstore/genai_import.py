"""Looks into an onnxruntime-genai model directory: precision, size, the files to carry over."""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from shared.errors import ModelUnsupportedError
from shared.model_manifest import MANIFEST_FILE, Precision
from workers.engine.decoder_config import CONFIG_FILE, DecoderConfig
from workers.modelstore.linear_nodes import Weights

HALVES = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
_INT4_BITS, _INT8_BITS = 4, 8
_INT8_OPERATORS = frozenset({"MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"})


@dataclass(frozen=True)
class GenaiDirectory:
    """One model directory; its weights are not loaded."""

    path: Path

    @cached_property
    def config(self) -> DecoderConfig:
        """Shapes and names; raises what `DecoderConfig.read` raises."""
        return DecoderConfig.read(self.path)

    @cached_property
    def graph(self) -> onnx.GraphProto:
        """The graph without its external weights.

        Raises:
            ModelUnsupportedError: the file is missing or no ONNX model.
        """
        try:
            return onnx.load(self.config.path, load_external_data=False).graph
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelUnsupportedError(f"{self.config.path} is not a readable ONNX model") from error
        except Exception as error:  # protobuf's DecodeError, whose module depends on the installed backend
            if type(error).__name__ != "DecodeError":
                raise
            raise ModelUnsupportedError(f"{self.config.path} is not a readable ONNX model") from error

    @property
    def architecture(self) -> str:
        """The `type` of the configuration."""
        text = (self.path / CONFIG_FILE).read_text(encoding="utf-8")
        return str(json.loads(text)["model"].get("type", "unknown"))

    @cached_property
    def half(self) -> str | None:
        """The half-precision type the model holds or takes, None where it is all float32."""
        types = [tensor.data_type for tensor in self.graph.initializer]
        types += [value.type.tensor_type.elem_type for value in self.graph.input]
        return next((HALVES[type_] for type_ in types if type_ in HALVES), None)

    @cached_property
    def precision(self) -> Precision:
        """What the linear layers compute in; half-precision counts as the float32 it is widened to.

        Raises:
            ModelUnsupportedError: nothing this version knows.
        """
        if _INT8_OPERATORS & {node.op_type for node in self.graph.node} or self._packed_bits == _INT8_BITS:
            return "int8"
        if self._packed_bits == _INT4_BITS:
            return "int4"
        if any(Weights(self.graph).linear_nodes()) or self._has_half_layers:
            return "fp32"
        raise ModelUnsupportedError(f"{self.path.name} has no linear layers of a known kind (fp32, int8, int4)")

    @property
    def _has_half_layers(self) -> bool:
        halves = {tensor.name for tensor in self.graph.initializer if tensor.data_type in HALVES}
        return any(node.op_type in {"MatMul", "FusedMatMul"} and node.input[1] in halves for node in self.graph.node)

    @cached_property
    def _packed_bits(self) -> int:
        """The bits of most weights packed for MatMulNBits, 0 without any."""
        bits = [
            a.i for node in self.graph.node if node.op_type == "MatMulNBits" for a in node.attribute if a.name == "bits"
        ]
        return max(set(bits), key=bits.count, default=0)

    @property
    def parameters(self) -> int:
        """Number of weights, rotary caches left out; two to a byte where packed in four bits."""
        packed = {node.input[1] for node in self.graph.node if node.op_type == "MatMulNBits"}
        doubled = 2 if self._packed_bits == _INT4_BITS else 1
        sizes = {t.name: int(np.prod(t.dims, dtype=np.int64)) for t in self.graph.initializer if "cache" not in t.name}
        return sum(size * (doubled if name in packed else 1) for name, size in sizes.items())

    @property
    def files(self) -> list[Path]:
        """Every file of the model."""
        return sorted(path for path in self.path.iterdir() if path.is_file() and path.name != MANIFEST_FILE)

    @property
    def weight_files(self) -> set[str]:
        """Names of the graph and of the files its weights lie in."""
        entries = [entry for tensor in self.graph.initializer for entry in tensor.external_data]
        return {self.config.path.name} | {entry.value for entry in entries if entry.key == "location"}

    def copy_to(self, target: Path, *, with_weights: bool) -> None:
        """Copy the files, or only those that are not weights, into the directory `target`."""
        target.mkdir(parents=True, exist_ok=True)
        for path in self.files:
            if with_weights or path.name not in self.weight_files:
                shutil.copyfile(path, target / path.name)
