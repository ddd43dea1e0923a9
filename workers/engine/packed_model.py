"""Segments with their weights packed as this processor's kernels want them, in files that all workers map.

Loading a model packs its weights into private memory, once per process. Packed once into files, they are mapped
instead: one copy per host, however many workers. A packed model fits one processor and one onnxruntime; its folder is
named after both.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from shared.cpu import Cpu
from workers.engine.decoder_config import DecoderConfig
from workers.engine.runtime import onnxruntime
from workers.engine.segment_session import SegmentSession
from workers.engine.segments import Segment

log = structlog.get_logger(__name__)

_FORMAT = 1
_ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class PackedModel:
    """The packed files of one model below `root`."""

    root: Path
    config: DecoderConfig
    segments: Sequence[Segment]

    def open(self, threads: int) -> list[SegmentSession] | None:
        """Return the segments' sessions over mapped files, packing them first if need be; None where that fails."""
        try:
            with self._locked():
                if not self._folder.is_dir():
                    self._pack()
            return [
                SegmentSession(segment, self._folder, threads, packed=self._folder / _name(index))
                for index, segment in enumerate(self.segments)
            ]
        except Exception as error:  # noqa: BLE001  # sharing saves memory; a full disk must not cost the worker
            log.warning("weights are not shared with other workers", error_type=type(error).__name__)
            return None

    @property
    def _folder(self) -> Path:
        digest = hashlib.sha256(f"{_FORMAT} {onnxruntime.__version__} {_processor()}".encode())
        for path in sorted(self.config.path.parent.iterdir()):
            facts = path.stat()
            digest.update(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}".encode())
        return self.root / digest.hexdigest()[:32]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process of the host pack at a time."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.root / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _pack(self) -> None:
        self._remove_outdated()
        temporary = Path(tempfile.mkdtemp(prefix="packing-", dir=self.root))
        try:
            for index, segment in enumerate(self.segments):
                SegmentSession(segment, self.config.path.parent, 1, pack_to=temporary / _name(index))
            (temporary / _ORIGIN).write_text(str(self.config.path.parent.resolve()), encoding="utf-8")
            _sync(temporary)
            temporary.rename(self._folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _remove_outdated(self) -> None:
        """Remove what other processors, other versions or a crash left, of this model and of models that are gone.

        Workers that still map the files keep them until they stop.
        """
        ours = str(self.config.path.parent.resolve())
        for folder in self.root.iterdir():
            if folder.is_dir():
                origin = folder / _ORIGIN
                model = origin.read_text(encoding="utf-8") if origin.is_file() else ours
                if model == ours or not Path(model).is_dir():
                    shutil.rmtree(folder, ignore_errors=True)


def _name(index: int) -> str:
    return f"segment-{index:03}.onnx"


def _processor() -> str:
    cpu = Cpu.detect()
    return f"{cpu.architecture} {cpu.model} {' '.join(sorted(cpu.flags))}"


def _sync(folder: Path) -> None:
    """Have every file on disk before the folder gets its name: a power cut must not leave a plausible torn one."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
