"""Single processes for other supervisors (systemd, containers), the schema, and keys."""

import os
from typing import Annotated, NoReturn

import typer

from cli.supervisor import fleet_file
from cli.supervisor.roles import module
from shared.errors import ConfigurationError
from shared.settings import get_settings

ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (api, worker, maintenance, flower):
        app.command()(command)
    database, keys = typer.Typer(help="The database's schema."), typer.Typer(help="API keys and encryption keys.")
    database.command("upgrade")(upgrade)
    keys.command("new-encryption-key")(new_encryption_key)
    keys.command("create")(create_key)
    keys.command("policy")(change_policy)
    keys.command("rotate-encryption")(rotate_encryption)
    keys.command("revoke")(revoke_key)
    audit = typer.Typer(help="The audit trail.", no_args_is_help=True)
    audit.command("verify")(verify_audit)
    app.add_typer(audit, name="audit")
    app.add_typer(database, name="db")
    app.add_typer(keys, name="keys")


def become(name: str, *arguments: str, **environment: str) -> NoReturn:
    """Replace this process by the module `name`; signals then reach it without a middleman."""
    command = module(name, *arguments)
    os.execve(command[0], command, os.environ | ENVIRONMENT | environment)  # noqa: S606  # our own interpreter, no shell


def _local_fleet() -> dict[str, str]:
    """Return what reaches the database of this machine's fleet, unless the environment names another one."""
    settings = get_settings()
    fleet = None if settings.database_url else fleet_file.read(settings.state_dir.absolute())
    if fleet is None:
        return {}
    key = (settings.state_dir / "encryption.key").read_text(encoding="utf-8").strip()
    return {"TOKENMILL_DATABASE_URL": fleet.database_url, "TOKENMILL_ENCRYPTION_KEY": key}


def api() -> None:
    """Serve the HTTP API."""
    become("api")


def worker(
    *,
    cores: Annotated[str | None, typer.Option(help="0, 0-3 or 0,2 [all this process may use].")] = None,
    model: Annotated[str | None, typer.Option(help="Installed model to serve [TOKENMILL_MODEL].")] = None,
) -> None:
    """Run one worker on a set of cores."""
    options = [part for name, value in (("--cores", cores), ("--model", model)) if value for part in (name, value)]
    become("workers", *options)


def maintenance() -> None:
    """Run relay, reaper and expiry; any number may run."""
    become("workers.maintenance")


def flower() -> None:
    """Run Flower on loopback; its login stands in `<state_dir>/flower.auth`."""
    become("cli.flower_process")


def upgrade() -> None:
    """Apply the migrations that are missing."""
    url = get_settings().database_url
    if url is None:
        raise ConfigurationError("set TOKENMILL_DATABASE_URL (`tokenmill up` migrates by itself)", field="database_url")
    from shared import migrate  # noqa: PLC0415  # other commands need not wait for its libraries

    migrate.upgrade(url.get_secret_value())
    typer.echo("The schema is up to date.")


def new_encryption_key() -> None:
    """Print a fresh value for TOKENMILL_ENCRYPTION_KEY; to rotate, put it before the old one with a comma."""
    from shared.crypto import generate_key  # noqa: PLC0415  # other commands need not wait for its libraries

    typer.echo(generate_key())


def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scopes: Annotated[str, typer.Option(help="Comma-separated: submit, read, admin.")] = "submit,read",
    policy: Annotated[str | None, typer.Option(help="Privacy policy: default, strict or a JSON file.")] = None,
    retention_days: Annotated[int | None, typer.Option(help="Erase content that many days after a job ended.")] = None,
) -> None:
    """Make an API key for this machine's fleet, or the one in the environment; print it, for the only time."""
    given = (("--policy", policy), ("--retention-days", retention_days))
    options = [part for option, value in given if value is not None for part in (option, str(value))]
    become("api.keys", "create", "--name", name, "--scopes", scopes, *options, **_local_fleet())


def rotate_encryption() -> None:
    """Seal all content anew with the first key of TOKENMILL_ENCRYPTION_KEY; says which older keys can go."""
    become("api.keys", "rotate-encryption", **_local_fleet())


def verify_audit(
    head: Annotated[str | None, typer.Option(help="A head noted earlier, POSITION:DIGEST.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Walk the audit chain; exit code 1 names the first broken link."""
    options = [*(["--head", head] if head else []), *(["--json"] if as_json else [])]
    become("api.audit", "verify", *options, **_local_fleet())


def change_policy(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The part after tm_.")],
    policy: Annotated[str, typer.Argument(help="default, strict or a JSON file.")],
) -> None:
    """Give an API key another privacy policy; jobs submitted from then on follow it."""
    become("api.keys", "policy", key_id, policy, **_local_fleet())


def revoke_key(key_id: Annotated[str, typer.Argument(metavar="ID", help="The part after tm_.")]) -> None:
    """Refuse an API key from now on."""
    become("api.keys", "revoke", key_id, **_local_fleet())
