"""A bench for `tokenmill run`: a folder, the command as a process, and a stand-in for the worker with real leases."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from shared import leases
from shared.crypto import KeyRing, Sealed
from shared.database import Database
from shared.leases import FinishedOutput, JobError
from shared.models import Attempt, Job
from shared.states import JobState

INSTRUCTION = "Sum up:"
EVERYTHING = "~"
LEASE = timedelta(minutes=5)


@dataclass
class LeaseWorker:
    """Ends queued jobs whose text sorts before `below`; those that contain `fails` end as failed."""

    database: Database
    keyring: KeyRing
    below: str = EVERYTHING
    fails: str = "no such text"
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            with self.database.transaction() as session:
                queued = session.scalars(select(Job).where(Job.state == JobState.QUEUED)).all()
            for job in queued:
                text = self._text(job)
                if text < self.below:
                    self._end(job.id, text)

    def _end(self, job_id: str, text: str) -> None:
        with self.database.transaction() as session:
            job = leases.claim(session, job_id, "test-worker", LEASE)
            assert job is not None
            if self.fails in text:
                error = JobError("generation_failed", "the engine failed", retryable=True)
                assert leases.close(session, job_id, job.fence, JobState.FAILED, error)
            else:
                assert leases.complete(session, job_id, job.fence, self._output(job_id, f"<{text}>"))

    def _text(self, job: Job) -> str:
        assert job.prompt_key_id is not None
        assert job.prompt_ciphertext is not None
        sealed = Sealed(job.prompt_key_id, job.prompt_ciphertext)
        content = json.loads(self.keyring.open(sealed, context=f"job:{job.id}:prompt"))["messages"][0]["content"]
        return str(content).removeprefix(f"{INSTRUCTION}\n\n")

    def _output(self, job_id: str, text: str) -> FinishedOutput:
        sealed = self.keyring.seal(json.dumps({"text": text}).encode(), context=f"job:{job_id}:output")
        return FinishedOutput(
            output_ciphertext=sealed.blob,
            output_key_id=sealed.key_id,
            finish_reason="stop",
            prompt_tokens=10,
            cached_tokens=2,
            completion_tokens=4,
            queue_ms=1.0,
            prefill_ms=1.0,
            decode_ms=1.0,
            model_version="v1",
            privacy_receipt={"entities": {"PHONE": 2}, "policy": "default@1", "ms": 0.1},
        )


@dataclass
class Bench:
    """One test's fleet and folder."""

    url: str
    key: str
    folder: Path
    worker: LeaseWorker
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.folder / "out.jsonl"

    def write(self, count: int) -> None:
        (self.folder / "in").mkdir()
        for number in range(count):
            (self.folder / "in" / f"{number:03}.txt").write_text(f"text {number:03}")

    def start(self, *options: str, **environment: str) -> "subprocess.Popen[str]":
        given = {"TOKENMILL_API_URL": self.url, "TOKENMILL_API_KEY": self.key, **environment}
        command = ["run", "in", "--instruction", INSTRUCTION, "--max-tokens", "16", "-o", self.out.name, *options]
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *command],
            cwd=self.folder,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()

    def run(self, *options: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*options, **environment)
        stdout, stderr = process.communicate(timeout=120)
        return process.returncode, stdout, stderr

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_bytes().splitlines()]

    def written(self) -> int:
        return self.out.read_bytes().count(b"\n") if self.out.exists() else 0

    def counts(self) -> tuple[int, int]:
        """Jobs and attempts on record."""
        with self.worker.database.transaction() as session:
            jobs = session.scalars(select(func.count()).select_from(Job)).one()
            return jobs, session.scalars(select(func.count()).select_from(Attempt)).one()

    def check_lines(self, count: int) -> None:
        found = [(line["document"], line["index"], line["output"]) for line in self.lines()]
        assert found == [(f"{number:03}.txt", number, f"<text {number:03}>") for number in range(count)]
