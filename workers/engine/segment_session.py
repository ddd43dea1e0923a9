"""A loaded segment: one onnxruntime session that reads and writes buffers of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelUnsupportedError
from workers.engine.runtime import onnxruntime
from workers.engine.segments import Segment

Arrays = Mapping[str, NDArray[Any]]


def _options(threads: int) -> Any:  # noqa: ANN401  # onnxruntime ships no types
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # The number of tokens differs at nearly every step; a remembered memory plan per shape would only grow.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False  # as fast without, and memory stays flat
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _write_packed(options: Any, path: Path) -> None:  # noqa: ANN401  # onnxruntime ships no types
    options.optimized_model_filepath = str(path)
    for key, value in {
        "session.optimized_model_external_initializers_file_name": f"{path.name}.data",
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        "session.save_external_prepacked_constant_initializers": "1",
    }.items():
        options.add_session_config_entry(key, value)


class SegmentSession:
    """Runs one segment for any number of tokens."""

    def __init__(
        self,
        segment: Segment,
        directory: Path,
        threads: int,
        *,
        packed: Path | None = None,
        pack_to: Path | None = None,
    ) -> None:
        """Load it; its weights lie in `directory`. Load the file `packed` instead, or write one to `pack_to`.

        Raises:
            ModelUnsupportedError: onnxruntime refuses it; says why.
        """
        self.inputs, self.outputs = segment.inputs, segment.outputs
        options = _options(threads)
        if packed is None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(directory))
        if pack_to is not None:
            _write_packed(options, pack_to)
        source = segment.model.SerializeToString() if packed is None else str(packed)
        try:
            self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors share no base of their own
            raise ModelUnsupportedError(
                f"onnxruntime cannot load a part of the model: {type(error).__name__}: {error}"
            ) from error
        self._binding = self._session.io_binding()

    def widths(self, inputs: Arrays) -> dict[str, int]:
        """Run once for the one token of `inputs` [1, 1, width]; return the width of every output.

        Raises:
            ModelUnsupportedError: it does not run token by token; says why.
        """
        try:
            values = self._session.run(list(self.outputs), {name: inputs[name] for name in self.inputs})
        except Exception as error:  # as above
            raise ModelUnsupportedError(f"a part of the model does not run: {type(error).__name__}: {error}") from error
        for name, value in zip(self.outputs, values, strict=True):
            if value.dtype != np.float32 or value.shape[:2] != (1, 1) or value.ndim != 3:  # noqa: PLR2004  # [1, 1, width]
                raise ModelUnsupportedError(f"{name} is {value.dtype} {value.shape}, not float32 token by token")
        return {name: value.shape[2] for name, value in zip(self.outputs, values, strict=True)}

    def run(self, inputs: Arrays, outputs: Arrays) -> None:
        """Compute into `outputs`; all arrays are contiguous, [tokens, 1, width] or ids [tokens, 1]."""
        binding = self._binding
        for name in self.inputs:
            array = inputs[name]
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name in self.outputs:
            array = outputs[name]
            binding.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding)
