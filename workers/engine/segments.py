"""Cuts a decoder graph at its attention operators, so that attention and KV are ours and the rest stays the runtime's.

Between two attentions everything works token by token: projections, norms, the feed-forward part. Cut there, one run
of a segment serves any mix of tokens, prompt chunks and decode rows together, without padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from shared.errors import ModelUnsupportedError
from workers.engine.attention.kernels import Geometry
from workers.engine.decoder_config import DecoderConfig

_OPERATOR = "GroupQueryAttention"
# Inputs of the operator, by position; see onnxruntime's ContribOperators.md.
_PAST, _LENGTHS, _CACHES, _LAST_KNOWN = slice(3, 5), slice(5, 7), slice(7, 9), 9
_NEUTRAL: dict[str, Any] = {"local_window_size": -1, "softcap": 0.0, "smooth_softmax": 0, "qk_output": 0}
_CHANNEL_BLOCK = 8


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """What one attention operator computes; `inputs` are packed queries, keys and values, or the three of them."""

    inputs: tuple[str, ...]
    output: str
    heads: int
    kv_heads: int
    geometry: Geometry


@dataclass(frozen=True, slots=True)
class Segment:
    """A graph between two attentions. Its outputs are what attention reads and what the next segment does besides."""

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SegmentedDecoder:
    """A decoder as segments with an attention between each two: `len(segments) == len(layers) + 1`."""

    segments: tuple[Segment, ...]
    layers: tuple[AttentionLayer, ...]

    @classmethod
    def read(cls, config: DecoderConfig) -> "SegmentedDecoder":
        """Cut the graph that `config` describes; its weights stay where they are.

        Raises:
            ModelUnsupportedError: it is no graph of known attentions with token-wise parts between; says why.
        """
        try:
            model = onnx.load(config.path, load_external_data=False)
        except Exception as error:  # protobuf's and onnx's errors share no base
            raise ModelUnsupportedError(
                f"{config.path.name} is not a readable ONNX model: {type(error).__name__}"
            ) from error
        return _Cutter(model, config).cut()


class _Cutter:
    def __init__(self, model: onnx.ModelProto, config: DecoderConfig) -> None:
        self._model, self._config = model, config
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._attentions = [node for node in model.graph.node if node.op_type == _OPERATOR]
        self._stage: dict[str, int] = {}

    def cut(self) -> SegmentedDecoder:
        expected = self._config.kv_shape.layers
        if len(self._attentions) != expected:
            raise ModelUnsupportedError(
                f"the graph has {len(self._attentions)} {_OPERATOR} operators for {expected} layers"
            )
        layers = tuple(self._layer(index, node) for index, node in enumerate(self._attentions))
        self._assign_stages()
        return SegmentedDecoder(tuple(self._segments(layers)), layers)

    def _layer(self, index: int, node: onnx.NodeProto) -> AttentionLayer:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = list(node.input)
        pasts = [self._config.past_keys % index, self._config.past_values % index]
        shape = self._config.kv_shape
        heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
        for name, neutral in _NEUTRAL.items():
            if attributes.get(name, neutral) != neutral:
                raise ModelUnsupportedError(f"{_OPERATOR} with {name} {attributes[name]}")
        if inputs[_PAST] != pasts or any(inputs[_LAST_KNOWN:]):
            raise ModelUnsupportedError(f"{_OPERATOR} {node.name} has inputs this runner does not know")
        if kv_heads != shape.kv_heads or heads % kv_heads or shape.head_size % _CHANNEL_BLOCK:
            raise ModelUnsupportedError(
                f"attention with {heads} heads, {kv_heads} KV heads of {shape.head_size};"
                f" this runner serves {shape.kv_heads} KV heads of a multiple of {_CHANNEL_BLOCK} channels"
            )
        cosines, sines = self._rotary(inputs[_CACHES], rotated=bool(attributes.get("do_rotary", 0)))
        return AttentionLayer(
            inputs=tuple(name for name in inputs[:3] if name),
            output=str(node.output[0]),
            heads=heads,
            kv_heads=kv_heads,
            geometry=Geometry(
                cosines=cosines,
                sines=sines,
                interleaved=bool(attributes.get("rotary_interleaved", 0)),
                scale=np.float32(attributes.get("scale", 0.0) or shape.head_size**-0.5),
            ),
        )

    def _rotary(self, names: Sequence[str], *, rotated: bool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if not rotated:
            empty = np.empty((self._config.context_length, 0), np.float32)
            return empty, empty
        cosines, sines = (self._array(name) for name in names)
        return cosines, sines

    def _array(self, name: str) -> NDArray[np.float32]:
        tensor = self._initializers.get(name)
        if tensor is None:
            raise ModelUnsupportedError(f"{name} of {_OPERATOR} is computed, not stored")
        if not uses_external_data(tensor):
            return np.ascontiguousarray(numpy_helper.to_array(tensor), np.float32)
        info = ExternalDataInfo(tensor)
        # Not through onnx, which refuses links: caches of downloaded models consist of them.
        path = self._config.path.parent / Path(info.location).name
        shape, dtype = tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type)
        return np.array(np.memmap(path, dtype, "r", int(info.offset or 0), shape), np.float32)

    def _assign_stages(self) -> None:
        """Note for every value after how many attentions it exists."""
        for value in self._model.graph.input:
            self._stage[value.name] = 0
        position = {node.output[0]: index for index, node in enumerate(self._attentions)}
        for node in self._model.graph.node:
            index = position.get(node.output[0])
            stage = max((self._stage.get(name, 0) for name in node.input), default=0)
            if index is not None:
                if stage > index:
                    raise ModelUnsupportedError(f"{_OPERATOR} operators are not one after another")
                stage = index + 1
            for output in node.output:
                self._stage[output] = stage

    def _segments(self, layers: Sequence[AttentionLayer]) -> Iterator[Segment]:
        made_by = {output: node for node in self._model.graph.node for output in node.output if output}
        wanted = [list(layer.inputs) for layer in layers] + [[self._config.logits]]
        segments: list[Segment] = []
        for stage in reversed(range(len(wanted))):
            nodes, inputs = self._needed(wanted[stage], stage, made_by)
            outputs = tuple(dict.fromkeys(wanted[stage]))
            attention = {layers[stage - 1].output} if stage else set()
            for name in inputs:
                if self._stage[name] < stage and name not in self._graph_inputs and name not in attention:
                    if self._stage[name] < stage - 1:
                        raise ModelUnsupportedError(f"{name} is read across more than one attention")
                    wanted[stage - 1].append(name)
            segments.append(Segment(self._model_of(nodes, inputs, outputs), tuple(inputs), outputs))
        return reversed(segments)

    @property
    def _graph_inputs(self) -> set[str]:
        return {name for name in (self._config.input_ids, self._config.position_ids) if name}

    def _needed(
        self, outputs: Sequence[str], stage: int, made_by: dict[str, onnx.NodeProto]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """Return this stage's nodes that make `outputs`, and what they read from elsewhere."""
        pending, needed, inputs = list(outputs), set(), dict[str, None]()
        while pending:
            name = pending.pop()
            node = made_by.get(name)
            if name in self._initializers or not name:
                continue
            if node is None or node.op_type == _OPERATOR or self._stage[name] < stage:
                inputs[name] = None
            elif node.name + node.output[0] not in needed:
                needed.add(node.name + node.output[0])
                pending.extend(node.input)
        foreign = set(inputs) & ({value.name for value in self._model.graph.input} - self._graph_inputs)
        if foreign:
            raise ModelUnsupportedError(f"the graph reads {sorted(foreign)} outside of attention")
        nodes = [node for node in self._model.graph.node if node.name + node.output[0] in needed]
        return nodes, list(inputs)

    def _model_of(self, nodes: list[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
        used = {name for node in nodes for name in node.input}
        weights = [tensor for name, tensor in self._initializers.items() if name in used]
        graph = helper.make_graph(
            nodes,
            "segment",
            [self._value(name) for name in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            weights,
        )
        return helper.make_model(graph, opset_imports=list(self._model.opset_import), ir_version=self._model.ir_version)

    def _value(self, name: str) -> onnx.ValueInfoProto:
        if name in self._graph_inputs:
            return helper.make_tensor_value_info(name, TensorProto.INT64, ["tokens", 1])
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["tokens", 1, None])
