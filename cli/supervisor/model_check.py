"""Before workers start: is the model there? The default one is imported when it is missing."""

import subprocess
from collections.abc import Mapping

import structlog

from cli.embedded.files import log_file, tail
from cli.embedded.process import launch
from cli.supervisor.roles import module
from shared.errors import ModelNotFoundError, ServerStartError
from shared.model_registry import resolve
from shared.settings import DEFAULT_MODEL, Settings

log = structlog.get_logger()
STOP_SECONDS = 5.0


def ensure_model(settings: Settings, environment: Mapping[str, str]) -> str:
    """Return name and version of the model workers will serve, after importing the default one if need be.

    Raises:
        ModelNotFoundError: another model than the default one is wanted and not installed.
        ServerStartError: the import failed; the message carries the end of its log.
    """
    try:
        found = resolve(settings.model, settings.model_dir)
    except ModelNotFoundError:
        if settings.model != DEFAULT_MODEL:
            raise
        log.info("importing the default model", model=settings.model)
        _pull(settings, environment)
        found = resolve(settings.model, settings.model_dir)
    return f"{found.name}@{found.version}"


def _pull(settings: Settings, environment: Mapping[str, str]) -> None:
    path = log_file(settings.state_dir, "model")
    arguments = module("workers.modelstore", "pull", *directories(settings))
    process = launch(arguments, log=path, environment=environment)
    try:
        exit_code = process.wait()
    except BaseException:
        _end(process)
        raise
    if exit_code != 0:
        raise ServerStartError(f"the default model could not be imported (`tokenmill models pull`):\n{tail(path)}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def directories(settings: Settings) -> tuple[str, ...]:
    """Return the options every command of the model store takes."""
    return ("--model-dir", str(settings.model_dir.absolute()), "--cache-dir", str(settings.cache_dir.absolute()))
