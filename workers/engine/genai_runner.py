"""onnxruntime-genai as a `ModelRunner`: one row, in the genai child; sampling stays here, so every option works."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from workers.engine.genai_model_info import GenaiModelInfo
from workers.engine.genai_process import GenaiProcess
from workers.engine.model_runner import KvBlock, Logits, RowTokens


class GenaiRunner:
    """Serves an adapter, or a graph the continuous runner refuses, one sequence at a time.

    Several runners may share a process. Rows do not batch: genai would compute those that have ended to the end.
    """

    max_num_seqs = 1

    def __init__(
        self, process: GenaiProcess, max_model_len: int, adapter: str | None = None, file: Path | None = None
    ) -> None:
        """Take the process and the `adapter` (None: the plain model) with its file. Nothing is loaded yet."""
        self._process, self._adapter, self._file = process, adapter, "" if file is None else str(file)
        self.max_model_len = min(max_model_len, process.info.context_length)

    @property
    def info(self) -> GenaiModelInfo:
        """What the model's configuration says."""
        return self._process.info

    @property
    def context_length(self) -> int:
        """Tokens the model may be given."""
        return self.info.context_length

    @property
    def vocab_size(self) -> int:
        """Width of logits."""
        return self.info.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a generation."""
        return self.info.eos_token_ids

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV of a full row, in the child."""
        return self.max_model_len * self.info.kv_bytes_per_token

    def execute(self, work: Sequence[RowTokens]) -> Logits:
        """Append tokens to the row; return the last one's logits [1, vocab], or [0, vocab] if nobody wants them.

        Raises:
            GenaiCallError: the runtime failed, or the row was lost with an earlier child.
            GenaiChildError: the child ended.
        """
        (item,) = work  # there is one row
        logits = self._append(item.token_ids, item.position)
        return logits if item.wants_logits else logits[:0]

    def move(self, source: int, target: int, tokens: int) -> None:
        """Nothing to do: there is one row."""

    def save_kv(self, row: int, start: int, stop: int) -> NoReturn:
        """Refuse: genai does not hand out KV."""
        raise NotImplementedError("the genai runner hands out no KV; give its engine no prefix cache and no swap")

    def load_kv(self, row: int, start: int, block: KvBlock) -> NoReturn:
        """Refuse: genai takes no KV."""
        raise NotImplementedError("the genai runner takes no KV; give its engine no prefix cache and no swap")

    def warm_up(self) -> None:
        """Do nothing: the first job loads the model, or `load` does."""

    def load(self) -> None:
        """Load the model now.

        Raises:
            ModelUnsupportedError: onnxruntime-genai cannot run it either.
            GenerationFailedError: there is no memory for it.
        """
        self._append([0], 0)

    def close(self) -> None:
        """Nothing to do: the process belongs to the genai engine."""

    def _append(self, token_ids: Sequence[int], position: int) -> Logits:
        reply = self._process.call(
            "append",
            ids=[int(token_id) for token_id in token_ids],
            position=int(position),
            max_length=self.max_model_len,
            adapter=self._adapter,
            file=self._file,
        )
        return np.frombuffer(reply.payload, np.float32)[None]
