"""The `tokenmill` command: a thin table of contents; each module of commands registers its own."""

import importlib
import importlib.util
import sys

import typer

from cli.exit_codes import exit_code_of
from shared.errors import TokenmillError

MODULES = (
    "cli.commands_fleet",
    "cli.commands_process",
    "cli.commands_jobs",
    "cli.commands_models",
    "cli.commands_doctor",
    "cli.commands_tune",
    "cli.commands_run",
    "cli.commands_scrub",
)

app = typer.Typer(
    name="tokenmill",
    help="Run large batches of LLM generation on CPUs: `tokenmill up`, then submit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def register_all() -> None:
    """Let every module of commands add its own: each has `register(app)`."""
    for name in MODULES:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name).register(app)


def main() -> None:
    """Run the command line; errors raised on purpose become one line on stderr and a documented exit code."""
    register_all()
    try:
        app()
    except TokenmillError as error:
        typer.echo(f"tokenmill: {error.message}", err=True)
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
