"""A fleet as `tokenmill up` runs it, in a state directory of its own, and the command line pointed at it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cli.embedded.postgres import PostgresServer
from cli.embedded.process import ProcessIdentity, wait_until
from cli.supervisor import fleet_file
from cli.supervisor.readiness import is_ready
from tests.fake_up import REPOSITORY

READY_SECONDS = 90.0


class LocalFleet:
    """`tests.fake_up` in a state directory of its own, and the command line pointed at it."""

    def __init__(self, directory: Path) -> None:
        self.state_dir = directory / "state"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKENMILL_")}
        self.environment |= {"TOKENMILL_STATE_DIR": str(self.state_dir), "PYTHONPATH": str(REPOSITORY)}
        self.supervisor: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        command = [sys.executable, "-m", "tests.fake_up", str(self.state_dir), "2"]
        self.supervisor = subprocess.Popen(command, env=self.environment, cwd=self.state_dir.parent)
        assert wait_until(self.ready, READY_SECONDS), self.logs()

    def ready(self) -> bool:
        assert self.supervisor is not None
        assert self.supervisor.poll() is None, self.logs()
        fleet = fleet_file.read(self.state_dir)
        return fleet is not None and fleet.supervisor is not None and is_ready(fleet.api_url)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.state_dir.parent,
        )

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.command("status", "--json").stdout)
        return answer

    def pids(self, role: str) -> list[int]:
        return [process["pid"] for process in self.status()["processes"] if process["role"] == role]

    def identities(self) -> list[ProcessIdentity]:
        fleet = fleet_file.read(self.state_dir)
        assert fleet is not None
        return [process.identity for process in fleet.alive()]

    def logs(self) -> str:
        paths = sorted((self.state_dir / "logs").glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in paths)

    def down(self) -> None:
        done = self.command("down")
        assert done.returncode == 0, done.stderr
        if self.supervisor is not None:
            self.supervisor.wait(10)

    def remove(self) -> None:
        self.down()
        server = PostgresServer(self.state_dir)
        if server.directory.exists() and server.placement.home != server.directory:
            shutil.rmtree(server.placement.home)
        shutil.rmtree(self.state_dir.parent)


def new_fleet() -> LocalFleet:
    return LocalFleet(Path(tempfile.mkdtemp(prefix="tokenmill-up-")))
