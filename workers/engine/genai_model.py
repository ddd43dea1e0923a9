"""A model inside onnxruntime-genai, with a fence around each of its traps. Only the genai child imports this."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import workers.engine.runtime  # noqa: F401  # sets the environment before onnxruntime loads

import onnxruntime_genai  # isort: skip

Options = dict[str, Any]
QUIET = 4


class GenaiModel:
    """Rows that grow token by token, one per adapter (None: the plain model), and at most one beam search."""

    def __init__(self, directory: Path, threads: int, vocab_size: int) -> None:
        """Load `directory`; the thread count is explicit because genai's default counts the host's cores."""
        session = {
            "intra_op_num_threads": threads,
            "inter_op_num_threads": 1,
            "log_severity_level": QUIET,
            "session.intra_op.allow_spinning": "0",
        }
        config = onnxruntime_genai.Config(str(directory))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = onnxruntime_genai.Model(config)
        self._vocab_size = vocab_size
        self._adapters: Any = None
        self._loaded: set[str] = set()
        self._rows: dict[str | None, _Row] = {}
        self._beams: _BeamSearch | None = None

    def append(self, ids: Sequence[int], position: int, max_length: int, adapter: str | None, file: str) -> bytes:
        """Append `ids` to the row of `adapter`, which holds `position` tokens; return logits [vocab] float32.

        Raises:
            LookupError: the row does not hold so many tokens.
            ValueError: an id is out of range, or the logits are not what the configuration says.
        """
        self._check(ids)
        row = self._rows.get(adapter) or self._new_row(position, max_length, adapter, file)
        try:
            logits = row.append(ids, position)
        except BaseException:
            # After a failed step nobody knows what the row holds.
            self._rows.pop(adapter, None)
            raise
        if logits.size != self._vocab_size:
            raise ValueError(f"{logits.size} logits where the configuration says {self._vocab_size}")
        return logits.tobytes()

    def release(self, adapter: str | None) -> None:
        """Free the row of `adapter`, and the adapter."""
        self._rows.pop(adapter, None)
        if adapter in self._loaded:
            self._adapters.unload(adapter)
            self._loaded.discard(adapter)

    def start_beams(self, ids: Sequence[int], options: Options, adapter: str | None, file: str) -> None:
        """Begin a beam search and compute its prompt; one that was running is dropped."""
        self._check(ids)
        self._beams = None
        generator = self._generator(options, adapter, file)
        search = _BeamSearch(generator, len(ids), self._vocab_size, options["num_return_sequences"])
        search.start(ids)
        self._beams = search

    def step_beams(self) -> bool:
        """Grow every beam by a token; return whether the search is over."""
        return self._running().step()

    def finish_beams(self, count: int) -> list[list[int]]:
        """Return the `count` best outputs, best first, without the prompt, and end the search."""
        search, self._beams = self._running(), None
        return search.outputs(count)

    def drop_beams(self) -> None:
        """Free the search, if there is one."""
        self._beams = None

    def _running(self) -> "_BeamSearch":
        if self._beams is None:
            raise LookupError("no beam search is running")
        return self._beams

    def _new_row(self, position: int, max_length: int, adapter: str | None, file: str) -> "_Row":
        if position:
            raise LookupError(f"the row holds no tokens, not {position}")
        options = {"max_length": max_length, "do_sample": False, "num_beams": 1, "batch_size": 1}
        row = self._rows[adapter] = _Row(self._generator(options, adapter, file))
        return row

    def _generator(self, options: Options, adapter: str | None, file: str) -> Any:  # noqa: ANN401  # genai ships no types
        params = onnxruntime_genai.GeneratorParams(self._model)
        params.set_search_options(**options)
        _check_options(options, params.get_search_options())
        generator = onnxruntime_genai.Generator(self._model, params)
        if adapter is not None:
            self._load(adapter, file)
            generator.set_active_adapter(self._adapters, adapter)
        return generator

    def _load(self, adapter: str, file: str) -> None:
        if self._adapters is None:
            self._adapters = onnxruntime_genai.Adapters(self._model)
        if adapter not in self._loaded:
            self._adapters.load(file, adapter)
            self._loaded.add(adapter)

    def _check(self, ids: Sequence[int]) -> None:
        """Refuse ids out of range: a slightly negative one would index from the end of the embedding table."""
        if not ids or min(ids) < 0 or max(ids) >= self._vocab_size:
            raise ValueError("no token ids, or some out of range")


def _check_options(wanted: Options, effective: Options) -> None:
    """Compare what was asked with what genai will do: a number it cannot hold is changed without a word."""
    changed = [name for name, value in wanted.items() if not np.isclose(float(effective[name]), float(value))]
    if changed:
        raise ValueError(f"genai did not take the search option {changed[0]}")


class _Row:
    """One sequence: batch 1, so that no padding is looked for and any rewind is allowed."""

    def __init__(self, generator: Any) -> None:  # noqa: ANN401  # genai ships no types
        self._generator = generator

    def append(self, ids: Sequence[int], position: int) -> NDArray[np.float32]:
        held = self._generator.token_count()
        if position > held:
            raise LookupError(f"the row holds {held} tokens, not {position}")
        if position < held:
            # Tokens follow at once: between a rewind and an append the generator's logits are stale.
            self._generator.rewind_to(position)
        self._generator.append_tokens(np.asarray(ids, np.int32))
        return np.ascontiguousarray(self._generator.get_logits(), np.float32).reshape(-1)


class _BeamSearch:
    def __init__(self, generator: Any, prompt: int, vocab_size: int, kept: int) -> None:  # noqa: ANN401  # as above
        self._generator, self._prompt, self._vocab_size, self._kept = generator, prompt, vocab_size, kept

    def start(self, ids: Sequence[int]) -> None:
        # In one piece: a second append of a beam search overwrites the first.
        self._generator.append_tokens(np.asarray(ids, np.int32))

    def step(self) -> bool:
        if np.isnan(self._generator.get_logits()).any():
            raise FloatingPointError("logits that are not numbers")
        self._generator.generate_next_token()
        return bool(self._generator.is_done())

    def outputs(self, count: int) -> list[list[int]]:
        # `get_sequence` checks no bounds and would return whatever lies in memory.
        if count > self._kept:
            raise IndexError(f"the search keeps {self._kept} outputs, not {count}")
        return [self._output(index) for index in range(count)]

    def _output(self, index: int) -> list[int]:
        ids: list[int] = self._generator.get_sequence(index).tolist()
        if len(ids) < self._prompt or not all(0 <= token_id < self._vocab_size for token_id in ids):
            raise IndexError("genai returned a sequence that is none")
        return ids[self._prompt :]
