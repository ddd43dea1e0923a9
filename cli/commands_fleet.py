"""`tokenmill up`, `down` and `status`: the fleet of this machine."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Annotated

import typer

from cli.embedded.files import log_file, private_directory
from cli.embedded.process import launch
from cli.exit_codes import ExitCode
from cli.screen import screen
from cli.supervisor import fleet_file
from cli.supervisor.fleet_file import Fleet, key_file
from cli.supervisor.lock import already_running, holder
from cli.supervisor.readiness import wait_ready
from cli.supervisor.roles import module
from shared.errors import ServerStartError, ServiceUnavailableError
from shared.settings import Settings, get_settings

StateDir = Annotated[Path | None, typer.Option(help="Where keys, logs and data are kept [TOKENMILL_STATE_DIR].")]
READY_SECONDS = 600.0
END_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)


def effective(state_dir: Path | None = None, workers: int | None = None) -> Settings:
    """Return the settings with options of the command line on top and an absolute state directory."""
    settings = get_settings()
    changes = {"state_dir": (state_dir or settings.state_dir).absolute()}
    return settings.model_copy(update=changes | ({} if workers is None else {"workers": workers}))


def up(
    *,
    detach: Annotated[bool, typer.Option(help="Return once the fleet is ready.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of workers [one per core].")] = None,
    state_dir: StateDir = None,
    timeout: Annotated[float, typer.Option(help="With --detach: seconds to become ready.")] = READY_SECONDS,
    quiet: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start everything on this machine: servers, migrations, API, workers, maintenance, Flower."""
    settings = effective(state_dir, workers)
    running = holder(settings.state_dir)
    if running is not None and detach and workers is None:
        # Whoever only wants a fleet that is up has one: scripts may say so again and again.
        fleet = wait_ready(settings.state_dir, lambda: running.alive, timeout)
        typer.echo(screen(fleet, None, detached=True))
        return
    if running is not None:
        raise already_running(settings.state_dir, running.pid)
    if detach:
        _detach(settings, timeout)
        return
    from cli.supervisor import up as supervision  # noqa: PLC0415  # other commands need not wait for its libraries

    supervision.run(settings, _ignore if quiet else _announce_when_ready)


def _ignore(_fleet: Fleet, _new_key: str | None) -> None:
    """A detached supervisor has no screen, and its log must not hold the key."""


def _announce_when_ready(fleet: Fleet, new_key: str | None) -> None:
    typer.echo(f"Starting: {fleet.api_url}; logs in {fleet.state_dir}/logs")
    threading.Thread(target=_announce, args=(Path(fleet.state_dir), new_key), daemon=True).start()


def _announce(state_dir: Path, new_key: str | None) -> None:
    try:
        fleet = wait_ready(state_dir, lambda: True, READY_SECONDS)
    except ServerStartError as error:
        typer.echo(f"tokenmill: {error.message}", err=True)
    else:
        typer.echo(screen(fleet, new_key, detached=False))


def _detach(settings: Settings, timeout: float) -> None:
    private_directory(settings.state_dir)
    key_path = key_file(settings.state_dir)
    earlier = key_path.read_text(encoding="utf-8") if key_path.exists() else None
    with _spawn(settings) as process:
        try:
            fleet = wait_ready(settings.state_dir, lambda: process.poll() is None, timeout)
        except BaseException:
            _end(process)
            raise
        key = key_path.read_text(encoding="utf-8")
        typer.echo(screen(fleet, key.strip() if key != earlier else None, detached=True))
        process.returncode = 0  # it stays: leaving the block must not wait for it


def _spawn(settings: Settings) -> "subprocess.Popen[bytes]":
    options = ["--quiet", "--state-dir", str(settings.state_dir)]
    options += ["--workers", str(settings.workers)] if settings.workers else []
    log = log_file(settings.state_dir, "supervisor")
    return launch(module("cli.main", "up", *options), log=log, directory=Path.cwd())


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # a second request: do not drain
        process.wait()


def down(
    *,
    state_dir: StateDir = None,
    purge: Annotated[bool, typer.Option(help="Then delete keys, logs and all data of this fleet.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting.")] = False,
) -> None:
    """Stop the fleet of this machine: workers finish what they hold first."""
    from cli.supervisor.down import purge as purge_state  # noqa: PLC0415  # other commands need not wait for it
    from cli.supervisor.down import stop_fleet  # noqa: PLC0415

    settings = effective(state_dir)
    if purge and not yes:
        typer.confirm(f"Delete every job, result and key in {settings.state_dir}?", abort=True)
    ran = stop_fleet(settings.state_dir, settings.drain_timeout.total_seconds())
    typer.echo("Tokenmill is down." if ran else f"Nothing runs in {settings.state_dir}.")
    if purge:
        purge_state(settings.state_dir)


def status(
    *, state_dir: StateDir = None, as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False
) -> None:
    """Show what runs on this machine; works while servers are down. Exit code 3 when no supervisor runs."""
    directory = effective(state_dir).state_dir
    fleet = fleet_file.read(directory)
    if fleet is None:
        raise ServiceUnavailableError(f"no fleet in {directory}: start one with `tokenmill up`")
    typer.echo(json.dumps(fleet.status(), indent=1) if as_json else _table(fleet))
    raise typer.Exit(ExitCode.DONE if fleet.supervisor else ExitCode.UNREACHABLE)


def _table(fleet: Fleet) -> str:
    state = "up" if fleet.supervisor else "down: start it with `tokenmill up`"
    lines = [f"{'fleet':<12} {state}", f"{'API':<12} {fleet.api_url}", f"{'Flower':<12} {fleet.flower_url}"]
    for process in fleet.alive():
        cores = f"  cores {','.join(map(str, process.cores))}" if process.cores else ""
        lines.append(f"{process.role:<12} pid {process.pid}{cores}")
    lines += [f"{name:<12} restarted {count} times" for name, count in fleet.restarts.items()]
    return "\n".join(lines)
