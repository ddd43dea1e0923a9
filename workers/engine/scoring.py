"""Runs a model over text for the importer: values of every position, nothing generated."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.engine.decoder_config import DecoderConfig
from workers.engine.runtime import onnxruntime

ONNXRUNTIME_VERSION = str(onnxruntime.__version__)


class ScoringSession:
    """A model held to be scored, on every core this process may use."""

    def __init__(self, model: bytes, directory: Path) -> None:
        """Load a serialised `model` whose external weights and `genai_config.json` lie in `directory`."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # cores are shared with workers
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(directory))
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._config = DecoderConfig.read(directory)

    def run(self, ids: Sequence[int], outputs: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return `outputs` for one sequence from an empty KV cache, each `[len(ids), size]`."""
        values = self._session.run(list(outputs), self._feed(np.asarray(ids, np.int64)[None]))
        return [value[0] for value in values]

    def _feed(self, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        config, shape = self._config, self._config.kv_shape
        feed: dict[str, NDArray[Any]] = {config.input_ids: ids, config.attention_mask: np.ones_like(ids)}
        if config.position_ids is not None:
            feed[config.position_ids] = np.arange(ids.shape[1], dtype=np.int64)[None]
        empty = np.zeros((1, shape.kv_heads, 0, shape.head_size), np.float32)
        return feed | dict.fromkeys(config.past_names, empty)
