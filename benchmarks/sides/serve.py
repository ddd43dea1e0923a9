"""`python -m benchmarks.sides.serve KIND MODEL CORE`: JSON questions in, JSON answers out, one a line.

A question is `{"measure": NAME, "arguments": {...}}`, an answer `{"figures": {...}}` or `{"error": TEXT}`.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import IO

from benchmarks.sides.measurement import Measurer

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _answers_only() -> IO[str]:
    """Return standard output for answers; whatever a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return answers


def _answer(measurer: Measurer, line: str) -> dict[str, object]:
    question = json.loads(line)
    try:
        return {"figures": getattr(measurer, question["measure"])(**question["arguments"])}
    except Exception as error:  # noqa: BLE001  # one measurement that fails must not lose the others
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    """Pin, load, answer until the other end closes."""
    kind, model, core = sys.argv[1:]
    # Before any runtime is imported: they size their thread pools by what they find.
    os.sched_setaffinity(0, {int(core)})
    os.environ |= {"ORT_DISABLE_TELEMETRY": "1", **dict.fromkeys(THREAD_VARIABLES, "1")}
    answers = _answers_only()
    try:
        measurer = importlib.import_module(f"benchmarks.sides.{kind}_side").open_side(Path(model))
        answers.write(json.dumps({"version": measurer.version}) + "\n")
    except Exception as error:  # noqa: BLE001  # said to whoever asks, not to a terminal nobody reads
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}) + "\n")
        return
    for line in sys.stdin:
        answers.write(json.dumps(_answer(measurer, line)) + "\n")


if __name__ == "__main__":
    main()
