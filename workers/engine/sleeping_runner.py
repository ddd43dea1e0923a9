"""A runner that gives its memory back while nobody needs it, and loads again with the next step."""

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from workers.engine.model_runner import KvBlock, Logits, ModelRunner, RowTokens

log = structlog.get_logger(__name__)


class SleepingRunner:
    """A `ModelRunner` in front of one that `load` makes. `rest` may be called from any thread, the others as ever."""

    def __init__(self, load: Callable[[], ModelRunner]) -> None:
        """Load at once; raises what `load` raises."""
        self._load = load
        runner = load()
        self._runner: ModelRunner | None = runner
        self.max_num_seqs, self.max_model_len = runner.max_num_seqs, runner.max_model_len
        self.context_length, self.vocab_size = runner.context_length, runner.vocab_size
        self.eos_token_ids = runner.eos_token_ids
        self.calls = 0
        self.broken = False
        self._closed = False
        # Held during every call, so that nothing is unloaded under a step.
        self._lock = threading.Lock()

    @property
    def asleep(self) -> bool:
        """Whether the model is unloaded."""
        return self._runner is None

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache, 0 while it is unloaded."""
        runner = self._runner
        return 0 if runner is None else runner.kv_bytes

    def rest(self, calls: int) -> bool:
        """Unload, unless a call came since `calls` was read; return whether it did.

        Read `calls` first and then make sure that no sequence is under way: rows lose what they hold.
        """
        with self._lock:
            if self.calls != calls or self._runner is None:
                return False
            self._runner.close()
            self._runner = None
        _give_back()
        return True

    @contextmanager
    def _awake(self) -> Iterator[ModelRunner]:
        with self._lock:
            self.calls += 1
            if self._runner is None:
                self._runner = self._loaded_again()
            yield self._runner

    def _loaded_again(self) -> ModelRunner:
        if self._closed:
            raise RuntimeError("the runner is closed")
        log.info("model loading again")
        try:
            runner = self._load()
            runner.warm_up()
        except BaseException:
            self.broken = True
            raise
        self.broken = False
        log.info("model loaded again")
        return runner

    def execute(self, work: Sequence[RowTokens]) -> Logits:
        """See `ModelRunner`."""
        with self._awake() as runner:
            return runner.execute(work)

    def move(self, source: int, target: int, tokens: int) -> None:
        """See `ModelRunner`."""
        with self._awake() as runner:
            runner.move(source, target, tokens)

    def save_kv(self, row: int, start: int, stop: int) -> KvBlock:
        """See `ModelRunner`."""
        with self._awake() as runner:
            return runner.save_kv(row, start, stop)

    def load_kv(self, row: int, start: int, block: KvBlock) -> None:
        """See `ModelRunner`."""
        with self._awake() as runner:
            runner.load_kv(row, start, block)

    def warm_up(self) -> None:
        """See `ModelRunner`."""
        with self._awake() as runner:
            runner.warm_up()

    def close(self) -> None:
        """Free the model for good."""
        with self._lock:
            self._closed = True
            if self._runner is not None:
                self._runner.close()


def _give_back() -> None:
    """Return freed memory to the system: sessions and bindings refer to each other, and glibc keeps small pieces."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)
