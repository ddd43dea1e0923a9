"""`tokenmill doctor` and `tokenmill config`."""

import json
from typing import Annotated

import typer

from cli import table
from cli.doctor.finding import Verdict
from cli.exit_codes import ExitCode
from shared.settings import get_settings

AsJson = Annotated[bool, typer.Option("--json", help="For scripts.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(doctor)
    app.command("config")(config)


def doctor(*, as_json: AsJson = False) -> None:
    """Check this machine and the services it uses. Exit code 1 when something must be mended first."""
    from cli.doctor import machine, services  # noqa: PLC0415  # other commands need not wait for their libraries

    settings = get_settings()
    found = [*machine.findings(settings), *services.findings(settings)]
    rows = [finding.public() for finding in found]
    if as_json:
        typer.echo(json.dumps({"findings": rows}, indent=1))
    else:
        table.show(rows, ("verdict", "name", "detail"))
    raise typer.Exit(ExitCode.FAILED if any(f.verdict is Verdict.FAIL for f in found) else ExitCode.DONE)


def config(*, as_json: AsJson = False) -> None:
    """Show the effective settings, secrets hidden."""
    values = get_settings().public_values()
    if as_json:
        typer.echo(json.dumps(values, indent=1))
    else:
        table.show([{"setting": name, "value": value} for name, value in values.items()], ("setting", "value"))
