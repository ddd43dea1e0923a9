"""`tokenmill run`: documents in, one JSON line per document out."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from cli.bulk import report
from cli.bulk.bulk_run import BulkRun
from cli.bulk.fleet_client import FleetClient
from cli.bulk.inputs import Inputs
from cli.bulk.plan import Plan
from cli.bulk.progress import watching
from cli.bulk.result_file import ResultFile
from cli.bulk.tally import Tally
from cli.connection import Connection, find_connection
from cli.exit_codes import ExitCode
from shared.errors import InvalidInputError, TokenmillError
from shared.sampling import SamplingParams
from shared.settings import get_settings


def register(app: typer.Typer) -> None:
    """Add `run` to the command line."""
    app.command("run")(run)


def run(  # noqa: PLR0913  # one parameter per option
    inputs: Annotated[
        list[Path], typer.Argument(metavar="INPUT...", help="Folders, .txt, .md, .jsonl, .csv or .tsv files.")
    ],
    *,
    instruction: Annotated[str, typer.Option(help="What to do with every document; stands before its text.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Result file, one JSON line each.")] = None,
    input_column: Annotated[str, typer.Option(help="Field or column with the text.")] = "text",
    id_column: Annotated[str, typer.Option(help="Field or column that names a document.")] = "id",
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens generated per document.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 always takes the likeliest token.")] = None,
    model: Annotated[str | None, typer.Option(help="An installed model; else the fleet's default.")] = None,
    run_name: Annotated[str, typer.Option(help="Another name runs the same documents anew.")] = "",
    in_flight: Annotated[
        int, typer.Option("--in-flight", "--concurrency", min=1, max=100_000, help="Unfinished jobs kept at once.")
    ] = 256,
    wait_timeout: Annotated[
        float | None, typer.Option(min=1, help="Give up after this many seconds in which no job ends.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Discard results of another run in the result file.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Count documents and characters; submit nothing.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON; progress goes to stderr.")
    ] = False,
) -> None:
    """Run one instruction over many documents. Repeat the command to resume: nothing completed runs again."""
    source = Inputs(inputs, input_column, id_column)
    source.check()
    if not instruction.strip():
        raise InvalidInputError("the instruction is empty: say what to do with each document", field="--instruction")
    if dry_run:
        _show_counts(source, as_json=as_json)
        return
    plan = Plan(instruction, model, _sampling(max_tokens=max_tokens, temperature=temperature), run_name)
    client = _client(find_connection(get_settings()))
    with ResultFile(_distinct(output, inputs), plan.digest, overwrite=overwrite) as results:
        tally = Tally(source.count())
        bulk = BulkRun(client, plan, results, tally, in_flight=in_flight, stall_limit=wait_timeout)
        try:
            asyncio.run(_process(client, bulk, source, as_json=as_json))
        except (KeyboardInterrupt, TokenmillError) as stop:
            _say_how_to_resume(results, tally)
            if isinstance(stop, TokenmillError):
                raise
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    _show_summary(tally, as_json=as_json)
    raise typer.Exit(ExitCode.FAILED if tally.failed else ExitCode.DONE)


def _client(connection: Connection) -> FleetClient:
    return FleetClient(connection.url, connection.key)


async def _process(client: FleetClient, bulk: BulkRun, source: Inputs, *, as_json: bool) -> None:
    watcher, drawing = watching(Console(stderr=as_json), bulk.tally.total)
    async with client:
        with drawing:
            await bulk.run(source.documents(), watcher)


def _sampling(**given: float | None) -> dict[str, Any]:
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        # Defaults are left out, so that spelling one out names the same run.
        return SamplingParams.model_validate(chosen).model_dump(exclude_defaults=True)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise InvalidInputError(f"{option}: {first['msg']}", field=option) from error


def _distinct(output: Path | None, inputs: list[Path]) -> Path:
    if output is None:
        raise InvalidInputError("no result file: name one with -o OUT.jsonl", field="--output")
    if output.resolve() in {path.resolve() for path in inputs}:
        raise InvalidInputError(f"{output} is also an input: name another result file", field="--output")
    return output


def _show_counts(source: Inputs, *, as_json: bool) -> None:
    documents = characters = faulty = 0
    for document in source.documents():
        documents += 1
        characters += len(document.text)
        faulty += document.fault is not None
    if as_json:
        typer.echo(json.dumps({"documents": documents, "characters": characters, "faulty": faulty}))
    else:
        typer.echo(f"{documents:,} documents, {characters:,} characters, {faulty:,} that cannot be submitted")


def _show_summary(tally: Tally, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.summary(tally), ensure_ascii=False))
    else:
        report.show(Console(), tally)


def _say_how_to_resume(results: ResultFile, tally: Tally) -> None:
    typer.echo(
        f"Stopped: {results.written:,} of {tally.total:,} documents stand in {results.path}, which is written in input "
        "order. Every job submitted goes on in the fleet; run the same command again to collect them all.",
        err=True,
    )
