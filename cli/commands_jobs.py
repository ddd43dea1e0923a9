"""`tokenmill jobs list|show|cancel|retry` and `tokenmill workers`."""

import json
from typing import Annotated, Any

import typer

from cli import table
from cli.client import Client
from cli.connection import find_connection
from shared.settings import get_settings
from shared.states import JobState

AsJson = Annotated[bool, typer.Option("--json", help="For scripts.")]
JobId = Annotated[str, typer.Argument(metavar="JOB")]
COLUMNS = ("id", "status", "attempts", "created_at")  # 80 characters; `--json` has the rest
WORKER_COLUMNS = ("worker_id", "cores", "status", "model_version")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    jobs = typer.Typer(help="Jobs of your API key.", no_args_is_help=True)
    for name, command in (("list", list_jobs), ("show", show), ("cancel", cancel), ("retry", retry)):
        jobs.command(name)(command)
    app.add_typer(jobs, name="jobs")
    app.command("workers")(workers)


def client() -> Client:
    """Return a client of the configured API, or of this machine's fleet."""
    return Client(find_connection(get_settings()))


def list_jobs(
    *,
    status: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="Only jobs older than this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    with client() as api:
        page = api.get("/v1/jobs", status=status, limit=limit, after=after)
    _show(page, page["data"], COLUMNS, as_json=as_json)


def show(job: JobId, *, wait: Annotated[float, typer.Option(min=0, max=25)] = 0, as_json: AsJson = False) -> None:
    """Show one job; with --wait SECONDS, at its end or after that time."""
    with client() as api:
        _show_job(api.get(f"/v1/jobs/{_id(job)}", wait=wait or None), as_json=as_json)


def cancel(job: JobId, *, as_json: AsJson = False) -> None:
    """Cancel a job: at once while it is queued, within a step while it runs."""
    with client() as api:
        _show_job(api.post(f"/v1/jobs/{_id(job)}/cancel"), as_json=as_json)


def retry(job: JobId, *, as_json: AsJson = False) -> None:
    """Queue a job that ended without a result again."""
    with client() as api:
        _show_job(api.post(f"/v1/jobs/{_id(job)}/retry"), as_json=as_json)


def workers(*, as_json: AsJson = False) -> None:
    """List the workers the fleet knows, on all hosts."""
    with client() as api:
        answer = api.get("/v1/workers")
    _show(answer, answer["data"], WORKER_COLUMNS, as_json=as_json)


def _id(job: str) -> str:
    if not job.replace("_", "").isalnum():
        raise typer.BadParameter("a job id reads job_<hexadecimal>")
    return job


def _show(answer: Any, rows: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:  # noqa: ANN401  # JSON
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=1))
    else:
        table.show(rows, columns)


def _show_job(job: dict[str, Any], *, as_json: bool) -> None:
    rows = [{"field": name, "value": value} for name, value in job.items() if value is not None]
    _show(job, rows, ("field", "value"), as_json=as_json)
