"""A `ModelRunner` without a model: the next token is a function of what stands in the row, and of nothing else.

What stands there is, per token, a mark of what stood before it. So KV after another prefix gives other tokens, as in
a real model; how a prompt was cut makes no difference, which `test_attention.py` proves of the real one.
"""

import threading
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from workers.engine.model_runner import KvBlock, Logits, RowTokens

VOCAB_SIZE = 128
EOS = 2


def decode(ids: list[int]) -> str:
    """Token 65 is "A": ids are the bytes of the text, so characters beyond ASCII take several."""
    return bytes(ids).decode("utf-8", errors="replace")


class Kv(NamedTuple):
    token: int
    mark: int


class FakeRunner:
    """Rows hold marked tokens. Wrong rows or positions raise, so a scheduler that loses track is found out."""

    context_length = 4096
    vocab_size = VOCAB_SIZE
    eos_token_ids = frozenset({EOS})
    kv_bytes = 0

    def __init__(self, max_num_seqs: int = 4, max_model_len: int = 256, vocab_size: int = VOCAB_SIZE) -> None:
        self.max_num_seqs, self.max_model_len, self.vocab_size = max_num_seqs, max_model_len, vocab_size
        self.rows: list[list[Kv]] = [[] for _ in range(max_num_seqs)]
        self.scripts: dict[tuple[int, ...], list[int]] = {}
        self.poison: set[int] = set()
        self.not_a_number: set[int] = set()
        self.calls: list[tuple[str, int, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.warmed_up = 0
        self.saved = 0
        self.loaded = 0
        self.closed = 0

    def execute(self, work: Sequence[RowTokens]) -> Logits:
        self.gate.wait(10)
        if len({item.row for item in work}) < len(work):
            raise AssertionError("a row stands in a pass twice")
        decodes = [item for item in work if len(item.token_ids) == 1 and item.position]
        self.calls += [("decode", decodes[0].row, len(decodes))] if decodes else []
        self.calls += [("prefill", item.row, len(item.token_ids)) for item in work if item not in decodes]
        for item in work:
            self._compute(item.row, item.token_ids, item.position)
        return self._logits([item.row for item in work], [item.row for item in work if item.wants_logits])

    def move(self, source: int, target: int, tokens: int) -> None:
        self.rows[target] = self._first(source, tokens)

    def save_kv(self, row: int, start: int, stop: int) -> KvBlock:
        self.saved += 1
        return KvBlock(stop - start, (np.array(self._first(row, stop)[start:], np.int64),))

    def load_kv(self, row: int, start: int, block: KvBlock) -> None:
        self.loaded += 1
        self.rows[row] = [*self._first(row, start), *(Kv(*pair) for pair in block.arrays[0].tolist())]

    def warm_up(self) -> None:
        self.warmed_up += 1

    def close(self) -> None:
        self.closed += 1

    @property
    def decode_sizes(self) -> list[int]:
        return [count for kind, _, count in self.calls if kind == "decode"]

    @property
    def prefill_sizes(self) -> list[int]:
        return [count for kind, _, count in self.calls if kind == "prefill"]

    def _first(self, row: int, tokens: int) -> list[Kv]:
        if tokens > len(self.rows[row]):
            raise AssertionError(f"row {row} holds {len(self.rows[row])} tokens, not {tokens}")
        return self.rows[row][:tokens]

    def _compute(self, row: int, token_ids: Sequence[int], position: int) -> None:
        kept = self._first(row, position)
        for token_id in token_ids:
            mark = kept[-1].mark if kept else 0
            kept.append(Kv(token_id, zlib.crc32(str(token_id).encode(), mark)))
        self.rows[row] = kept

    def _logits(self, computed: Sequence[int], wanted: Sequence[int]) -> Logits:
        for row in computed:
            if self.poison & {kv.token for kv in self.rows[row]}:
                raise MemoryError("poisoned row")
        rows = [self._row_logits(self.rows[row]) for row in wanted]
        return np.stack(rows) if rows else np.empty((0, self.vocab_size), np.float32)

    def _row_logits(self, row: list[Kv]) -> Logits:
        tokens = [kv.token for kv in row]
        if self.not_a_number & set(tokens):
            return np.full(self.vocab_size, np.nan, np.float32)
        for prompt, script in self.scripts.items():
            if tuple(tokens[: len(prompt)]) == prompt:
                return self._certain(script[len(tokens) - len(prompt)])
        random = np.random.default_rng(zlib.crc32(repr(row).encode()))
        return random.normal(size=self.vocab_size).astype(np.float32)

    def _certain(self, token_id: int) -> Logits:
        row = np.zeros(self.vocab_size, np.float32)
        row[token_id] = 10
        return row
