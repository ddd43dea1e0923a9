"""`tokenmill models ...`: hands over to the model store, which needs the worker's libraries."""

import typer

from cli.commands_process import become
from cli.supervisor.model_check import directories
from shared.settings import get_settings

PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
HELP = {
    "pull": "Download and import a model (the default one without a name).",
    "import": "Import a model from a GGUF file or a directory.",
    "list": "List installed models and their versions.",
    "inspect": "Show the manifest of a model.",
    "verify": "Compare every file of a model with its manifest.",
    "activate": "Make a version the active one.",
    "rollback": "Make the earlier version active again.",
}


def register(app: typer.Typer) -> None:
    """Add one command per command of the model store."""
    models = typer.Typer(help="Installed models.", no_args_is_help=True)
    for name, text in HELP.items():
        models.command(name, help=text, context_settings=PASS_ON)(hand_over)
    app.add_typer(models, name="models")


def hand_over(context: typer.Context) -> None:
    """Become the model store's command of the same name."""
    become("workers.modelstore", str(context.info_name), *context.args, *directories(get_settings()))
