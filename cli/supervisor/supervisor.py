"""The loop: start in order, restart what ends, write down what runs, drain at the end."""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from cli.embedded.process import birth_of
from cli.supervisor import fleet_file
from cli.supervisor.child import Child
from cli.supervisor.fleet_file import SUPERVISOR_ROLE, Fleet, FleetProcess
from cli.supervisor.process_spec import ProcessSpec
from cli.supervisor.served import SupervisedServer
from cli.supervisor.stop_request import StopRequest

log = structlog.get_logger()
TICK_SECONDS = 0.1
FIRST_TO_STOP = "worker"


class Supervisor:
    """Keeps servers and children of one state directory running until `stop` is requested."""

    def __init__(
        self,
        fleet: Fleet,
        servers: Sequence[SupervisedServer],
        specs: Sequence[ProcessSpec],
        stop: StopRequest,
    ) -> None:
        """Take servers that are started already, and the children to start, in order."""
        self._fleet = fleet
        self._servers = servers
        self._stop = stop
        self._children = [Child(spec, Path(fleet.state_dir)) for spec in specs]
        self._watched: list[SupervisedServer | Child] = [*servers, *self._children]

    def run(self) -> None:
        """Supervise until a stop is requested, then drain. Children never outlive this call."""
        try:
            while not self._stop.requested:
                self.tick()
                self._stop.wait(TICK_SECONDS)
        finally:
            self.drain()

    def tick(self) -> None:
        """One round: restart what ended and write down what runs."""
        for each in self._watched:
            each.tick()
        self._write()

    def _write(self) -> None:
        running = (self._own_entry(), *(each.entry() for each in self._watched))
        restarts = {each.name: each.restarts for each in self._watched if each.restarts}
        entries = tuple(entry for entry in running if entry is not None)
        current = replace(self._fleet, processes=entries, restarts=restarts)
        if current != self._fleet:
            fleet_file.write(current)
            self._fleet = current

    def _own_entry(self) -> FleetProcess:
        return FleetProcess(SUPERVISOR_ROLE, os.getpid(), birth_of(os.getpid()) or "")

    def drain(self) -> None:
        """Workers first, so that what they hold still reaches the record; servers last."""
        log.info("draining", count=len(self._children))
        workers = [child for child in self._children if child.spec.role == FIRST_TO_STOP]
        others = [child for child in self._children if child.spec.role != FIRST_TO_STOP]
        for group in (workers, others):
            self._stop_children(group)
        for served in reversed(self._servers):
            served.server.stop()
        fleet_file.write(replace(self._fleet, processes=()))

    def _stop_children(self, children: Sequence[Child]) -> None:
        for child in children:
            child.ask_to_stop()
        began = time.monotonic()
        for child in children:
            child.finish(began + child.spec.stop_seconds, hurry=lambda: self._stop.urgent)
