"""Answers as JSON lines in benchmarks/results/, kept out of version control, written as soon as they are there."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("results")


class ResultFile:
    """The file of one run. Its first line says what it was taken on."""

    def __init__(self, name: str, machine: Mapping[str, object]) -> None:
        """Start a file called `name` and the time."""
        self.path = RESULTS / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}.jsonl"
        self.append({"machine": dict(machine)})

    def append(self, record: Mapping[str, object]) -> None:
        """Add one line."""
        RESULTS.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": datetime.now(UTC).isoformat(), **record}) + "\n")
