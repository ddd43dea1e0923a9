"""Runs measurements within a budget; keeps every answer in a file as soon as it is there."""

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.plan import Measurement
from benchmarks.result_file import ResultFile
from benchmarks.side_process import SideFailedError, SideProcess
from benchmarks.sides.measurement import Figures

MIN_TIMEOUT_S = 120
TIMEOUT_FACTOR = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a measurement: figures, or the reason why there are none."""

    measurement: Measurement
    figures: Figures
    failure: str = ""


class Campaign:
    """Asks the sides one after another. A measurement that would not fit the budget any more is skipped."""

    def __init__(self, sides: Mapping[str, SideProcess], results: ResultFile, budget_s: float) -> None:
        """Take the sides by label, and where answers are stored."""
        self._sides = sides
        self._deadline = time.monotonic() + budget_s
        self.results = results

    def run(self, group: Sequence[Measurement], runs: int) -> list[Answer]:
        """Measure the group `runs` times over; those that do not repeat, once."""
        return [
            self._measure(measurement)
            for number in range(runs)
            for measurement in group
            if number == 0 or measurement.repeats
        ]

    def _measure(self, measurement: Measurement) -> Answer:
        answer = self._ask(measurement)
        # The text that was scored is in the repository; its ids would only fill the file.
        arguments = {name: value for name, value in measurement.arguments.items() if name != "token_ids"}
        fields = {name: getattr(measurement, name) for name in ("suite", "row", "side", "name")}
        result = {"figures": answer.figures, "failure": answer.failure}
        self.results.append({**fields, "arguments": arguments, **result})
        outcome = answer.failure or ", ".join(f"{name} {value:.1f}" for name, value in answer.figures.items())
        sys.stderr.write(f"{measurement.suite} | {measurement.side} | {measurement.row}: {outcome}\n")
        return answer

    def _ask(self, measurement: Measurement) -> Answer:
        if time.monotonic() + measurement.estimate_s > self._deadline:
            return Answer(measurement, {}, "skipped: the time budget is used up")
        timeout = max(MIN_TIMEOUT_S, TIMEOUT_FACTOR * measurement.estimate_s)
        side = self._sides[measurement.side]
        try:
            return Answer(measurement, side.measure(measurement.name, dict(measurement.arguments), timeout))
        except SideFailedError as error:
            return Answer(measurement, {}, str(error))


def medians(answers: Sequence[Answer]) -> Figures:
    """Return the median of every figure over the answers that have it."""
    names = dict.fromkeys(name for answer in answers for name in answer.figures)
    return {name: statistics.median(a.figures[name] for a in answers if name in a.figures) for name in names}
