"""The one screen of `tokenmill up`."""

from pathlib import Path

from cli.supervisor.core_sets import written
from cli.supervisor.fleet_file import Fleet


def screen(fleet: Fleet, new_key: str | None, *, detached: bool) -> str:
    """Return what the operator needs: addresses, key (in full only when it is new), model, core sets, logs."""
    state_dir = Path(fleet.state_dir)
    workers = [process for process in fleet.processes if process.role == "worker"]
    cores = " | ".join(written(process.cores or ()) for process in workers)
    rows = {
        "API": fleet.api_url,
        "API key": f"{new_key}  (shown this once; kept in {fleet.key_file})" if new_key else f"in {fleet.key_file}",
        "Flower": f"{fleet.flower_url}  (login in {state_dir / 'flower.auth'})",
        "Model": fleet.model,
        "Workers": f"{len(workers)} on cores {cores}",
        "Logs": str(state_dir / "logs"),
        "Stop": "tokenmill down" if detached else "Ctrl-C",
    }
    return "\n".join(["Tokenmill is up.", *(f"  {name:<8} {value}" for name, value in rows.items())])
