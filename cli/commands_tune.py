"""`tokenmill tune`: hands over to the measurement, which needs the worker's libraries."""

from typing import Annotated

import typer

from cli.commands_process import become
from cli.supervisor.core_sets import usable_cores, written


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tune)


def tune(
    *,
    model: Annotated[str | None, typer.Option(help="Installed model [TOKENMILL_MODEL].")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A first impression within half a minute.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the best settings into ./tokenmill.toml.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """Measure which workers, threads, slots and step size suit this machine. Run it while nothing else does."""
    flags = {"--quick": quick, "--write": write, "--json": as_json}
    options = [name for name, wanted in flags.items() if wanted]
    become(
        "workers.tuning",
        "--cores",
        written(tuple(usable_cores())),
        *(("--model", model) if model else ()),
        *options,
    )
