"""The life of a worker process: warm up, serve until told to stop, drain, say goodbye."""

import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import structlog

from workers.consumer import Consumer
from workers.engine.serving import Serving
from workers.heartbeat import Heartbeat
from workers.held_jobs import HeldJobs
from workers.idle_unload import IdleUnload
from workers.isolation_gate import IsolationGate
from workers.memory_watch import MemoryWatch
from workers.stop_signals import StopSignals

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.2
SETTLE_SECONDS = 10.0
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The moving parts of one worker process; `run` on the main thread is its whole life."""

    engine: Serving
    consumer: Consumer
    heartbeat: Heartbeat
    held: HeldJobs
    gate: IsolationGate
    signals: StopSignals
    idle: IdleUnload
    memory: MemoryWatch
    drain_timeout: timedelta

    def run(self) -> bool:
        """Serve until a signal asks to stop; False when something ended that should not have.

        Messages are taken only when the engine is warm.
        """
        self.heartbeat.start()
        self.engine.start()
        healthy = self._serve()
        self._drain()
        return self._close() and healthy

    def _serve(self) -> bool:
        if not self.signals.asked:
            self.consumer.start()
            self.heartbeat.set_status("ready")
            log.info("worker ready", slots=self.engine.config.max_num_seqs)
        while not self.signals.asked:
            self._tick()
            self.idle.tick()
            if not self._fit():
                return False
        return True

    def _fit(self) -> bool:
        """Return whether to go on; otherwise the process drains and ends, to be started again."""
        if not self.consumer.alive:
            log.error("the consumer ended by itself; the process stops, to be started again")
            return False
        if self.idle.broken:
            log.error("the model could not be loaded again; the process stops, to be started again")
            return False
        return not self.memory.exceeded()

    def _tick(self) -> None:
        time.sleep(TICK_SECONDS)
        self.heartbeat.abort_overdue()

    def _drain(self) -> None:
        log.info("worker draining", count=len(self.held.fences()))
        self.heartbeat.set_status("draining")
        self.gate.close()
        self.consumer.cancel()
        timeout = self.drain_timeout.total_seconds()
        draining = threading.Thread(target=self.engine.drain, args=(timeout,), name="drain", daemon=True)
        draining.start()
        while draining.is_alive():
            self._tick()
            if self.signals.urgent:
                self.engine.drain(0)

    def _close(self) -> bool:
        # What was handed back still has to reach the database.
        settled = self.held.wait_until_empty(SETTLE_SECONDS)
        stopped = self.consumer.stop(STOP_SECONDS)
        self.heartbeat.stop(STOP_SECONDS)
        self.engine.close()
        log.info("worker stopped", count=len(self.held.fences()))
        return settled and stopped
