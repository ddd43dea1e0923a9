"""Jobs that need onnxruntime-genai: beam search, adapters, graphs the continuous runner refuses."""

import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from shared.adapters import adapter_file
from shared.errors import CancelledError, TokenmillError
from workers.engine.beam_engine import BeamEngine
from workers.engine.detokenizer import Decode
from workers.engine.engine import Engine, EngineConfig
from workers.engine.engine_stats import EngineStats
from workers.engine.genai_model_info import GenaiModelInfo
from workers.engine.genai_process import GenaiProcess
from workers.engine.genai_runner import GenaiRunner
from workers.engine.sequence import GenerationOutput, GenerationRequest
from workers.engine.serving import drain_together, stopping

MAX_IDLE_LANES = 8
SUMMED = ("running", "waiting", "prompt_tokens", "generated_tokens", "finished", "failed")


@dataclass(frozen=True, slots=True)
class GenaiConfig:
    """Tokens per sequence, threads of the child, seconds without a job after which it gives its memory back."""

    max_model_len: int = 2048
    intra_op_num_threads: int = 1
    idle_s: float = 300.0


class GenaiEngine:
    """The surface of `Engine` over one child process, which the first job starts.

    Every adapter in use has a lane: an engine with one row. Lanes and beam searches take turns, step by step.
    """

    def __init__(self, directory: Path, decode: Decode, config: GenaiConfig | None = None) -> None:
        """Take the model `directory`; nothing is loaded.

        Raises:
            ModelUnsupportedError: its configuration is missing or malformed.
        """
        self._config = config or GenaiConfig()
        self._decode = decode
        self.info = GenaiModelInfo.read(directory)
        self.process = GenaiProcess(self.info, self._config.intra_op_num_threads, self._config.idle_s)
        self._beams = BeamEngine(self.process, decode, self._config.max_model_len, self._interrupt)
        self._lock = threading.Lock()
        self._lanes: OrderedDict[str | None, Engine] = OrderedDict()
        self._gone = EngineStats(max_num_seqs=1)
        self._draining = False

    def __enter__(self) -> Self:
        """Return itself; nothing is loaded yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def submit(self, request: GenerationRequest) -> Future[GenerationOutput]:
        """Queue a generation; see `Engine.submit`.

        Raises:
            WorkerStoppingError: it is draining.
            InvalidInputError: as there; and the adapter is unknown, or a parameter does not go with beam search.
        """
        params = request.params
        if params.adapter is not None:
            adapter_file(self.info.directory, params.adapter)
        if params.num_beams > 1:
            return self._beams.submit(request)
        with self._lock:  # no lane may be given up between finding it and using it
            if self._draining:
                raise stopping()
            return self._lane(params.adapter).submit(request)

    def plain_lane(self) -> Engine:
        """Return the engine of the plain model, for a worker that has no other."""
        with self._lock:
            return self._lane(None)

    def load(self) -> None:
        """Load the model now; raises what `GenaiRunner.load` raises."""
        GenaiRunner(self.process, self._config.max_model_len).load()

    def cancel(self, request_id: str) -> bool:
        """End a generation with `CancelledError`; return whether it was still unfinished."""
        return self.abort(request_id, CancelledError("the job was cancelled"))

    def abort(self, request_id: str, error: TokenmillError) -> bool:
        """End a generation with `error` at once."""
        return self._beams.abort(request_id, error) or any(lane.abort(request_id, error) for lane in self._present())

    def drain(self, timeout: float) -> bool:
        """Stop admission everywhere; see `Engine.drain`."""
        with self._lock:
            self._draining = True
        return drain_together((self._beams, *self._present()), timeout)

    def close(self) -> None:
        """Hand back what is unfinished and end the child, in the middle of a call if need be."""
        self.drain(0)
        self.process.close()
        self._beams.close()
        for lane in self._present():
            lane.close()

    def stats(self) -> EngineStats:
        """Return the counters of all lanes and of beam search together."""
        total = self._gone.snapshot()
        for part in (self._beams.stats(), *(lane.stats() for lane in self._present())):
            _add(total, part)
        return total

    def child_bytes(self) -> int:
        """Return the resident memory of the child, 0 when there is none."""
        pid = self.process.pid
        try:
            return psutil.Process(pid).memory_info().rss if pid is not None else 0
        except psutil.NoSuchProcess:
            return 0

    def _present(self) -> list[Engine]:
        with self._lock:
            return list(self._lanes.values())

    def _lane(self, adapter: str | None) -> Engine:
        if adapter not in self._lanes:
            self._make_room()
            self._lanes[adapter] = self._new_lane(adapter)
        self._lanes.move_to_end(adapter)
        return self._lanes[adapter]

    def _new_lane(self, adapter: str | None) -> Engine:
        file = None if adapter is None else adapter_file(self.info.directory, adapter)
        runner = GenaiRunner(self.process, self._config.max_model_len, adapter, file)
        lane = Engine(runner, self._decode, EngineConfig(max_num_seqs=1, max_swap_tokens=0, prefix_cache_bytes=0))
        lane.start()
        return lane

    def _make_room(self) -> None:
        """Give up the longest unused adapter, if it is idle: each holds the KV of a row in the child."""
        for adapter, lane in list(self._lanes.items()):
            if adapter is None or len(self._lanes) < MAX_IDLE_LANES:
                continue
            stats = lane.stats()
            if not stats.running and not stats.waiting:
                lane.close()
                _add(self._gone, lane.stats())
                del self._lanes[adapter]

    def _interrupt(self) -> None:
        """End a long call that nobody waits for, unless a lane would lose a generation by it."""
        if not any(lane.stats().running for lane in self._present()):
            self.process.kill()


def _add(total: EngineStats, part: EngineStats) -> None:
    for name in SUMMED:
        setattr(total, name, getattr(total, name) + getattr(part, name))
