"""Show a result file of `tokenmill run` to people: one row per document."""

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table


def _redactions(record: dict[str, object]) -> str:
    privacy = record.get("privacy")
    entities = privacy.get("entities", {}) if isinstance(privacy, dict) else {}
    return ", ".join(f"{count} {entity}" for entity, count in sorted(entities.items())) or "-"


def main(path: Path) -> None:
    """Print the table of `path`."""
    table = Table(title=f"Results ({path})", show_lines=True)
    for heading in ("document", "replaced before inference", "output"):
        table.add_column(heading, overflow="fold")
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        table.add_row(record["document"], _redactions(record), record["output"] or str(record["error"]))
    Console().print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
