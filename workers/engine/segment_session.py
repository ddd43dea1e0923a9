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


class SegmentSession:
    """Runs one segment for any number of tokens."""

    def __init__(self, segment: Segment, directory: Path, threads: int) -> None:
        """Load it; its weights lie in `directory`.

        Raises:
            ModelUnsupportedError: onnxruntime refuses it; says why.
        """
        self.inputs, self.outputs = segment.inputs, segment.outputs
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # The number of tokens differs at nearly every step; a remembered memory plan per shape would only grow.
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(directory))
        try:
            self._session = onnxruntime.InferenceSession(
                segment.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
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
