"""A model without weights: bytes are tokens, steps last as long as asked, and one token kills the process."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from shared import model_registry
from shared.model_manifest import MANIFEST_FILE, CpuTarget, Manifest, Source
from tests.unit.engine.fake_runner import FakeRunner, decode
from workers.engine.model_runner import Logits, RowTokens

NAME = "fake"
POISON = "\x07"
FAULT = "\x7f"
"""Makes a step fail with an exception that quotes the prompt."""
GREEDY = "\x06"
GREEDY_BYTES = 600 << 20


class SteppingRunner(FakeRunner):
    """Each step lasts `step_seconds`; a prompt with `POISON` kills the process at once, `GREEDY` takes its memory."""

    def __init__(self, max_num_seqs: int, step_seconds: float) -> None:
        super().__init__(max_num_seqs, max_model_len=4096)
        self.step_seconds = step_seconds
        self.seen: list[str] = []
        self.hoard = b""

    def execute(self, work: Sequence[RowTokens]) -> Logits:
        for item in work:
            if item.position == 0:
                self._read(item.token_ids)
        if any(item.position for item in work):
            time.sleep(self.step_seconds)
        return super().execute(work)

    def _read(self, token_ids: Sequence[int]) -> None:
        self.seen.append(decode(list(token_ids)))
        if ord(POISON) in token_ids:
            os.kill(os.getpid(), signal.SIGKILL)
        if ord(FAULT) in token_ids:
            raise ValueError(f"cannot compute {self.seen[-1]}")
        if ord(GREEDY) in token_ids:
            self.hoard = b"x" * GREEDY_BYTES


class ByteTokenizer:
    """One token per byte of the contents."""

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return list("\n".join(message["content"] for message in messages).encode("ascii", errors="replace"))


def install(model_dir: Path) -> None:
    """Make the fake model installed and active in `model_dir`."""
    manifest = Manifest(
        name=NAME,
        version="1",
        files={},
        source=Source(kind="genai", uri="fake", sha256="0" * 64),
        architecture="fake",
        parameters=0,
        precision="fp32",
        weight_bits=32,
        context_length=4096,
        layers=1,
        kv_heads=1,
        head_size=1,
        vocab_size=128,
        kv_bytes_per_token=1,
        quality=None,
        cpu=CpuTarget(architecture="any", features=(), weight_range=0),
        created_at=datetime.now(UTC),
        onnxruntime_version="none",
        importer_version=1,
    )
    directory = model_dir / NAME / "1"
    directory.mkdir(parents=True)
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json())
    model_registry.activate(NAME, "1", model_dir)
