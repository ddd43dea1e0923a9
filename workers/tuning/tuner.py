"""Finds the best settings one after another: topology, then slots, then tokens per step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.errors import ConfigurationError, GenerationFailedError
from shared.memory import total_bytes
from shared.model_registry import ModelVersion
from shared.settings import Settings
from shared.worker_memory import USABLE_SHARE, WorkerMemory
from workers.tuning.candidate import (
    Candidate,
    Measurement,
    best,
    topologies,
    with_batched_tokens,
    with_slots,
)
from workers.tuning.crew import Crew
from workers.tuning.workload import FULL, QUICK, Work, Workload

Report = Callable[[str], None]
_LOAD_SECONDS = 6.0


@dataclass(frozen=True)
class Plan:
    """What to try. The first of `slots` and of `batched_tokens` is measured for every topology."""

    workload: Workload
    slots: tuple[int, ...]
    batched_tokens: tuple[int, ...]
    most_topologies: int

    @property
    def is_quick(self) -> bool:
        """Whether figures are only a first impression."""
        return self.workload is QUICK

    def topologies(self, cores: int) -> list[Candidate]:
        """Return the topologies to measure."""
        return topologies(cores, self.slots[0], self.batched_tokens[0])[: self.most_topologies]

    def seconds(self, cores: int) -> float:
        """Return about how long it takes."""
        first = len(self.topologies(cores))
        runs = first + len(self.slots) - 1 + len(self.batched_tokens) - 1
        return (first + 1) * _LOAD_SECONDS + runs * 2 * self.workload.window_s


THOROUGH = Plan(FULL, slots=(32, 8, 16, 64), batched_tokens=(512, 256, 1024), most_topologies=4)
SHORT = Plan(QUICK, slots=(16, 8), batched_tokens=(512,), most_topologies=2)


class Tuner:
    """Measures one model on `cores`; `report` is told of each result and of what did not work."""

    def __init__(
        self, version: ModelVersion, settings: Settings, cores: Sequence[int], plan: Plan, report: Report
    ) -> None:
        """Take the parts; nothing runs yet."""
        self._version, self._settings, self._cores = version, settings, cores
        self._plan, self._report = plan, report
        self.measurements: list[Measurement] = []

    def run(self) -> Measurement:
        """Measure; return the best.

        Raises:
            ConfigurationError: nothing fits this machine.
        """
        plan = self._plan
        for candidate in plan.topologies(len(self._cores)):
            self._try_all([candidate])
        if not self.measurements:
            raise ConfigurationError(
                f"no topology of {len(self._cores)} cores fits the memory; lower max_model_len or prefix_cache_mb,"
                " or import the model in int4",
                field="max_model_len",
            )
        winner = best(self.measurements).candidate
        self._try_all(with_slots(winner, plan.slots))
        winner = best(self.measurements).candidate
        self._try_all(with_batched_tokens(winner, plan.batched_tokens))
        return best(self.measurements)

    def _try_all(self, candidates: Sequence[Candidate]) -> None:
        """Measure candidates of one topology, in the same processes."""
        fitting = [candidate for candidate in candidates if self._fits(candidate)]
        if not fitting:
            return
        rows = max(candidate.slots for candidate in fitting)
        core_sets = fitting[0].core_sets(self._cores)
        try:
            with Crew(self._version.path, core_sets, rows, quick=self._plan.is_quick) as crew:
                for candidate in fitting:
                    works = crew.measure(candidate.slots, candidate.batched_tokens)
                    self._note(candidate, works)
        except GenerationFailedError as error:
            self._report(f"{fitting[0].workers} x {fitting[0].threads} threads: {error.message}")

    def _note(self, candidate: Candidate, works: Sequence[Work]) -> None:
        workload = self._plan.workload
        each = workload.tokens_per_job
        cpu = sum(work.cpu_seconds for work in works)
        found = Measurement(
            candidate,
            tokens_per_second=each * sum(work.jobs(workload) / work.seconds for work in works),
            tokens_per_cpu_second=each * sum(work.jobs(workload) for work in works) / max(cpu, 1e-6),
            memory_bytes=self._memory(candidate),
        )
        self.measurements.append(found)
        self._report(
            f"{candidate.workers} x {candidate.threads} threads, {candidate.slots} slots, "
            f"{candidate.batched_tokens} tokens per step: {found.tokens_per_second:.0f} tokens/s"
        )

    def _memory(self, candidate: Candidate) -> int:
        settings = self._settings.model_copy(update={"max_num_seqs": candidate.slots})
        return candidate.workers * WorkerMemory.planned(self._version.manifest, settings).total

    def _fits(self, candidate: Candidate) -> bool:
        wanted, there = self._memory(candidate), round(USABLE_SHARE * total_bytes())
        if wanted > there:
            self._report(
                f"{candidate.workers} x {candidate.threads} threads, {candidate.slots} slots: left out, would take"
                f" up to {wanted >> 20} MiB of {there >> 20}"
            )
        return wanted <= there
