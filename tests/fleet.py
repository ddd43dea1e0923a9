"""Fleet for tests: jobs straight into the database, and processes that are started, watched and stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from shared import jobs_repository
from shared.crypto import KeyRing, Sealed
from shared.database import Database
from shared.identifiers import new_id
from shared.jobs_repository import NewJob
from shared.models import ApiKey, Attempt, Job, Result
from shared.settings import Settings
from shared.states import JobState, Priority
from tests import fake_model

API_KEY_ID = "00ff00ff00ff00ff"


def keyring_of(settings: Settings) -> KeyRing:
    assert settings.encryption_key is not None
    return KeyRing.from_setting(settings.encryption_key.get_secret_value())


def wait_until(condition: Callable[[], object], seconds: float = 30.0, why: str = "") -> None:
    """Poll until `condition` holds; an assertion error when it does not within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {why or condition}"
        time.sleep(0.05)


@dataclass
class Jobs:
    """Jobs of one test, by way of the database."""

    database: Database
    keyring: KeyRing
    model: str = fake_model.NAME

    def submit(self, *prompts: str, max_tokens: int = 8, max_attempts: int = 3, **columns: Any) -> list[str]:  # noqa: ANN401  # columns of Job
        """Submit one job per prompt in one transaction; `columns` overwrite what is stored."""
        with self.database.transaction() as session:
            self._ensure_api_key(session)
            ids = [self._submit(session, prompt, max_tokens, max_attempts) for prompt in prompts]
            if columns:
                session.execute(update(Job).where(Job.id.in_(ids)).values(**columns))
        return ids

    def _ensure_api_key(self, session: Session) -> None:
        if session.get(ApiKey, API_KEY_ID) is None:
            key = ApiKey(id=API_KEY_ID, name="tests", secret_digest=b"", digest_key_id="test", scopes=["submit"])
            session.add(key)
            session.flush()

    def _submit(self, session: Session, prompt: str, max_tokens: int, max_attempts: int) -> str:
        job_id = new_id("job")
        content = json.dumps({"messages": [{"role": "user", "content": prompt}]}).encode()
        sealed = self.keyring.seal(content, context=f"job:{job_id}:prompt")
        job = NewJob(
            id=job_id,
            api_key_id=API_KEY_ID,
            model=self.model,
            sampling={"max_tokens": max_tokens, "ignore_eos": True},
            priority=Priority.NORMAL,
            prompt_ciphertext=sealed.blob,
            prompt_key_id=sealed.key_id,
            prompt_characters=len(prompt),
            input_digest=b"",
            correlation_id=f"test-{job_id[-8:]}",
            max_attempts=max_attempts,
        )
        return jobs_repository.submit(session, job).job.id

    def change(self, job_id: str, **columns: Any) -> None:  # noqa: ANN401  # columns of Job
        with self.database.transaction() as session:
            session.execute(update(Job).where(Job.id == job_id).values(**columns))

    def get(self, job_id: str) -> Job:
        with self.database.transaction() as session:
            return session.get_one(Job, job_id)

    def states(self, job_ids: Sequence[str]) -> set[str]:
        with self.database.transaction() as session:
            return set(session.scalars(select(Job.state).where(Job.id.in_(job_ids))))

    def in_state(self, state: JobState, job_ids: Sequence[str]) -> int:
        with self.database.transaction() as session:
            return len(session.scalars(select(Job.id).where(Job.id.in_(job_ids), Job.state == state)).all())

    def output(self, job_id: str) -> str:
        with self.database.transaction() as session:
            result = session.get_one(Result, job_id)
        assert result.output_ciphertext is not None
        assert result.output_key_id is not None
        sealed = Sealed(result.output_key_id, result.output_ciphertext)
        return str(json.loads(self.keyring.open(sealed, context=f"job:{job_id}:output"))["text"])

    def attempts(self, job_id: str) -> list[Attempt]:
        with self.database.transaction() as session:
            return list(session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.fence)))

    def wait_for_end(self, job_ids: Sequence[str], seconds: float = 60.0) -> None:
        wait_until(
            lambda: not self.states(job_ids) & {JobState.QUEUED, JobState.RUNNING}, seconds, f"{len(job_ids)} jobs"
        )


class FleetProcess:
    """A process of the fleet with its log; killed on the way out if it still runs."""

    def __init__(self, module: str, *arguments: str, settings: Settings, log: Path, **overrides: str) -> None:
        assert settings.database_url is not None
        assert settings.redis_url is not None
        assert settings.encryption_key is not None
        values = {
            "database_url": settings.database_url.get_secret_value(),
            "redis_url": settings.redis_url.get_secret_value(),
            "encryption_key": settings.encryption_key.get_secret_value(),
            "state_dir": str(settings.state_dir),
            "model_dir": str(settings.model_dir),
            "model": settings.model,
            **overrides,
        }
        self.log = log
        self._file = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=settings.child_environment(**values),
            stdout=self._file,
            stderr=self._file,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._file.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def says(self, event: str) -> bool:
        return event in self.log.read_text(errors="replace")

    def wait_for(self, event: str, seconds: float = 60.0) -> None:
        def said() -> bool:
            assert self.process.poll() is None or self.says(event), self.log.read_text(errors="replace")[-4000:]
            return self.says(event)

        wait_until(said, seconds, event)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait(10)


StartProcess = Callable[..., FleetProcess]
