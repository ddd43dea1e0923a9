"""The way of one job inside a worker: real database, real engine and scrubber, a model without weights."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from api.job_view import view
from shared import leases
from shared.crypto import KeyRing, Sealed, generate_key
from shared.database import Database
from shared.models import FailureMetric, Outbox, Result, WorkerHeartbeat
from shared.privacy import Scrubber
from shared.privacy.span import Span
from shared.settings import Settings
from shared.states import JobState
from tests import fake_model
from tests.fake_model import ByteTokenizer, SteppingRunner
from tests.fleet import Jobs, keyring_of, wait_until
from tests.unit.engine.fake_runner import decode
from tests.unit.engine.test_structured import VOCABULARY
from workers.engine import Engine
from workers.engine.generations import Generations
from workers.figures import Figures
from workers.heartbeat import Heartbeat
from workers.held_jobs import HeldJobs
from workers.identity import Identity
from workers.isolation_gate import IsolationGate
from workers.job_content import JobContent
from workers.job_runner import JobRunner
from workers.job_store import JobStore

pytestmark = pytest.mark.servers

LEASE = timedelta(seconds=30)


@dataclass
class Bench:
    """A worker's parts without its process."""

    jobs: Jobs
    model: SteppingRunner
    engine: Engine
    generations: Generations
    held: HeldJobs
    gate: IsolationGate
    store: JobStore
    heartbeat: Heartbeat

    def runner(self, *, keyring: KeyRing | None = None, scrubber: Scrubber | None = None) -> JobRunner:
        content = JobContent(keyring or self.jobs.keyring, scrubber or Scrubber(), ByteTokenizer(), VOCABULARY)
        return JobRunner(
            store=self.store,
            content=content,
            engine=self.generations,
            held=self.held,
            gate=self.gate,
            model_version="fake@1",
        )

    def in_background(self, job_id: str) -> threading.Thread:
        """Run the job and return once its generation has begun."""
        thread = threading.Thread(target=self.runner().run, args=(job_id,))
        thread.start()
        wait_until(lambda: self.engine.stats().running == 1, why="a running sequence")
        return thread


@pytest.fixture
def bench(database: Database, settings: Settings) -> Iterator[Bench]:
    model = SteppingRunner(max_num_seqs=4, step_seconds=0.002)
    held, identity = HeldJobs(LEASE), Identity((0,), fake_model.NAME, "fake@1")
    with Engine(model, decode) as engine:
        generations = Generations(engine, VOCABULARY)
        heartbeat = Heartbeat(
            database=database,
            settings=settings,
            identity=identity,
            held=held,
            engine=generations,
            figures=Figures(engine).read,
        )
        jobs = Jobs(database, keyring_of(settings))
        yield Bench(
            jobs,
            model,
            engine,
            generations,
            held,
            IsolationGate(),
            JobStore(database, identity.worker_id, LEASE),
            heartbeat,
        )


def stored_result(jobs: Jobs, job_id: str) -> Result:
    with jobs.database.transaction() as session:
        return session.get_one(Result, job_id)


def test_a_job_completes_with_its_figures(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("Please summarise this document.", max_tokens=8)
    bench.runner().run(job_id)
    result = stored_result(bench.jobs, job_id)
    assert bench.jobs.get(job_id).state == JobState.COMPLETED
    assert (result.prompt_tokens, result.completion_tokens, result.finish_reason) == (31, 8, "length")
    assert len(bench.jobs.output(job_id)) > 0
    assert result.queue_ms >= 0
    assert result.decode_ms > 0
    assert bench.held.fences() == {}


def opened_output(jobs: Jobs, job_id: str) -> dict[str, Any]:
    result = stored_result(jobs, job_id)
    assert result.output_ciphertext is not None
    assert result.output_key_id is not None
    sealed = Sealed(result.output_key_id, result.output_ciphertext)
    content: dict[str, Any] = json.loads(jobs.keyring.open(sealed, context=f"job:{job_id}:output"))
    return content


def test_a_job_of_n_outputs_is_one_result_and_its_view_shows_all(bench: Bench) -> None:
    sampling = {"max_tokens": 6, "ignore_eos": True, "temperature": 1.0, "seed": 5, "n": 3}
    (job_id,) = bench.jobs.submit("Say something.", sampling=sampling)
    bench.runner().run(job_id)
    result = stored_result(bench.jobs, job_id)
    assert (result.prompt_tokens, result.completion_tokens) == (14, 18)
    shown = view(bench.jobs.keyring, bench.jobs.get(job_id), result)
    assert shown.choices is not None
    assert [choice.index for choice in shown.choices] == [0, 1, 2]
    assert len({choice.output for choice in shown.choices}) == 3
    assert shown.output == shown.choices[0].output
    assert {choice.finish_reason for choice in shown.choices} == {"length"}


def test_a_failing_output_fails_the_attempt_of_all(bench: Bench) -> None:
    bench.model.poison.add(ord("!"))
    (job_id,) = bench.jobs.submit("boom!", sampling={"max_tokens": 4, "n": 2})
    bench.runner().run(job_id)
    assert [attempt.error_code for attempt in bench.jobs.attempts(job_id)] == ["generation_failed"]
    wait_until(lambda: bench.engine.stats().running == 0, why="free rows")


def test_cancelling_ends_all_outputs(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("Count.", sampling={"max_tokens": 3000, "ignore_eos": True, "n": 2})
    thread = threading.Thread(target=bench.runner().run, args=(job_id,))
    thread.start()
    wait_until(lambda: bench.engine.stats().running == 2, why="two running sequences")
    bench.jobs.change(job_id, cancel_requested_at=func.now())
    bench.heartbeat.poll_cancellations()
    thread.join(10)
    assert bench.jobs.get(job_id).state == JobState.CANCELLED
    wait_until(lambda: bench.engine.stats().running == 0, why="free rows")


def test_sealed_parameters_are_merged_with_the_clear_ones(bench: Bench) -> None:
    prompt, said = "Say it.", b"one, two, three"
    bench.model.scripts[tuple(prompt.encode())] = list(said)
    job_id, plain_id = bench.jobs.submit(prompt, prompt, max_tokens=len(said))
    content = {"messages": [{"role": "user", "content": prompt}], "sampling": {"stop": [", t"]}}
    sealed = bench.jobs.keyring.seal(json.dumps(content).encode(), context=f"job:{job_id}:prompt")
    bench.jobs.change(job_id, prompt_ciphertext=sealed.blob, prompt_key_id=sealed.key_id)
    for each in (job_id, plain_id):
        bench.runner().run(each)
    assert [bench.jobs.output(each) for each in (job_id, plain_id)] == ["one", "one, two, three"]


def test_log_probabilities_are_kept_inside_the_sealed_output_only(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit(
        "Say it.", sampling={"max_tokens": 4, "ignore_eos": True, "logprobs": True, "top_logprobs": 2}
    )
    bench.runner().run(job_id)
    content = opened_output(bench.jobs, job_id)["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [2] * 4
    assert view(bench.jobs.keyring, bench.jobs.get(job_id), stored_result(bench.jobs, job_id)).logprobs is not None


def test_what_cannot_be_enforced_ends_the_job_for_good(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("Say it.", sampling={"regex": "(a"})
    bench.runner().run(job_id)
    job = bench.jobs.get(job_id)
    assert (job.state, job.error_code, job.attempt) == (JobState.FAILED, "invalid_input", 1)
    assert "sampling.regex" in str(job.error_message)
    assert "(a" not in str(job.error_message)


def test_personal_data_is_taken_out_before_the_model_sees_it(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("Write to jane.doe@example.com today.")
    bench.runner().run(job_id)
    assert bench.model.seen == ["Write to <EMAIL_1> today."]
    receipt = stored_result(bench.jobs, job_id).privacy_receipt
    assert receipt["entities"] == {"EMAIL": 1}
    assert "jane.doe" not in str(receipt)


def test_personal_data_a_model_writes_is_taken_out_before_it_is_stored(bench: Bench) -> None:
    prompt = "Whom?"
    said = b"ask john.roe@example.org"
    bench.model.scripts[tuple(prompt.encode())] = list(said)
    (job_id,) = bench.jobs.submit(prompt, max_tokens=len(said))
    bench.runner().run(job_id)
    assert bench.jobs.output(job_id) == "ask <EMAIL_1>"
    assert stored_result(bench.jobs, job_id).privacy_receipt["output_entities"] == {"EMAIL": 1}


class BrokenScrubber(Scrubber):
    """Fails inside the scrubber, as a faulty recognizer would."""

    def detect(self, text: str, **_: object) -> list[Span]:
        raise RuntimeError(text)


def test_scrubbing_that_fails_closes_the_job_and_nothing_is_generated(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    (job_id,) = bench.jobs.submit("canary-51c0ffee")
    bench.runner(scrubber=BrokenScrubber()).run(job_id)
    job = bench.jobs.get(job_id)
    assert (job.state, job.error_code, job.attempt) == (JobState.FAILED, "scrub_failed", 1)
    assert bench.model.seen == []
    captured = capsys.readouterr()
    assert "canary" not in f"{job.error_message}{captured.out}{captured.err}"


def test_a_worker_without_the_key_leaves_the_job_to_one_that_has_it(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text")
    bench.runner(keyring=KeyRing.from_setting(generate_key())).run(job_id)
    assert bench.jobs.get(job_id).state == JobState.QUEUED
    assert [attempt.error_code for attempt in bench.jobs.attempts(job_id)] == ["encryption_key_missing"]


def test_a_prompt_moved_from_another_row_fails(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text")
    (moved,) = bench.jobs.submit("text", prompt_ciphertext=bench.jobs.get(job_id).prompt_ciphertext)
    bench.runner().run(moved)
    assert bench.jobs.get(moved).error_code == "decryption_failed"


def test_a_prompt_that_does_not_fit_fails_with_its_code(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("x" * 4000, max_tokens=200)
    bench.runner().run(job_id)
    job = bench.jobs.get(job_id)
    assert (job.state, job.error_code) == (JobState.FAILED, "prompt_too_long")


def test_a_step_that_fails_is_tried_again_later_and_then_dead(bench: Bench) -> None:
    bench.model.poison.add(ord("!"))
    (job_id,) = bench.jobs.submit("boom!", max_attempts=2)
    bench.runner().run(job_id)
    job = bench.jobs.get(job_id)
    assert (job.state, job.attempt) == (JobState.QUEUED, 1)
    with bench.jobs.database.transaction() as session:
        assert session.scalars(select(Outbox.id).where(Outbox.not_before > func.now())).all()
    bench.jobs.change(job_id, run_after=func.now())
    bench.runner().run(job_id)
    assert bench.jobs.get(job_id).state == JobState.DEAD
    with bench.jobs.database.transaction() as session:
        assert session.scalars(select(FailureMetric.code)).all() == ["generation_failed"] * 2


def test_a_deadline_that_passes_while_running_expires_the_job(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("slow", max_tokens=2000, deadline=func.now() + timedelta(milliseconds=300))
    bench.runner().run(job_id)
    assert bench.jobs.get(job_id).state == JobState.EXPIRED


def test_a_duplicate_delivery_leaves_at_once(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text", max_tokens=500)
    running = bench.in_background(job_id)
    bench.runner().run(job_id)
    assert bench.jobs.get(job_id).state == JobState.RUNNING
    running.join(20)
    bench.runner().run(job_id)
    assert (bench.jobs.get(job_id).state, bench.jobs.get(job_id).attempt) == (JobState.COMPLETED, 1)


def test_a_cancellation_reaches_the_engine(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text", max_tokens=3000)
    running = bench.in_background(job_id)
    bench.jobs.change(job_id, cancel_requested_at=func.now())
    bench.heartbeat.poll_cancellations()
    running.join(20)
    assert bench.jobs.get(job_id).state == JobState.CANCELLED


def test_a_beat_renews_the_lease_and_writes_the_workers_row(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text", max_tokens=3000)
    running = bench.in_background(job_id)
    bench.jobs.change(job_id, lease_until=func.now() + timedelta(seconds=1))
    bench.heartbeat.beat()
    with bench.jobs.database.transaction() as session:
        renewed = leases.renew(session, bench.held.fences(), LEASE)
        row = session.scalars(select(WorkerHeartbeat)).one()
    assert renewed.lost == frozenset()
    assert row.figures["running"] == 1
    assert row.figures["slots"] == 4
    assert row.figures["rss_bytes"] > 0
    bench.engine.cancel(job_id)
    running.join(20)


def test_a_lease_that_was_lost_stops_the_generation_and_writes_nothing(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text", max_tokens=3000)
    running = bench.in_background(job_id)
    bench.jobs.change(job_id, lease_until=func.now() - timedelta(seconds=1))
    with bench.jobs.database.transaction() as session:
        assert leases.claim(session, job_id, "another worker", LEASE)
    bench.heartbeat.beat()
    running.join(20)
    job = bench.jobs.get(job_id)
    assert (job.state, job.worker_id, job.fence) == (JobState.RUNNING, "another worker", 2)
    assert bench.engine.stats().running == 0


def test_a_lease_that_could_not_be_renewed_stops_the_generation_without_the_database(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text", max_tokens=3000)
    running = bench.in_background(job_id)
    bench.heartbeat.abort_overdue()
    assert running.is_alive()
    bench.held.renewed(bench.held.fences(), since=-1e9)
    bench.heartbeat.abort_overdue()
    running.join(20)
    assert bench.jobs.get(job_id).state == JobState.RUNNING  # the reaper's to settle


def test_a_result_that_comes_after_the_lease_is_discarded(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text", max_tokens=300)
    running = bench.in_background(job_id)
    bench.jobs.change(job_id, fence=2)
    running.join(20)
    with bench.jobs.database.transaction() as session:
        assert session.get(Result, job_id) is None


def test_a_suspect_waits_until_it_is_alone(bench: Bench) -> None:
    (other,) = bench.jobs.submit("other", max_tokens=400)
    (suspect,) = bench.jobs.submit("suspect", isolate=True)
    running = bench.in_background(other)
    waiting = threading.Thread(target=bench.runner().run, args=(suspect,))
    waiting.start()
    running.join(20)
    waiting.join(20)
    (first,), (second,) = bench.jobs.attempts(other), bench.jobs.attempts(suspect)
    assert first.finished_at is not None
    assert first.finished_at <= second.started_at
    assert bench.jobs.get(suspect).state == JobState.COMPLETED


def test_a_message_that_arrives_while_the_worker_stops_is_published_anew(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text")
    with bench.jobs.database.transaction() as session:
        session.execute(delete(Outbox))
    bench.gate.close()
    bench.runner().run(job_id)
    with bench.jobs.database.transaction() as session:
        assert session.scalars(select(Outbox.job_id)).all() == [job_id]
    assert bench.jobs.get(job_id).attempt == 0


def test_draining_gives_the_attempt_back(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text", max_tokens=3000)
    running = bench.in_background(job_id)
    bench.engine.drain(0)
    running.join(20)
    job = bench.jobs.get(job_id)
    assert (job.state, job.attempt, job.fence) == (JobState.QUEUED, 0, 1)


def test_a_commit_whose_answer_is_lost_is_read_back_not_repeated(bench: Bench, postgres_url: str) -> None:
    class AnswerLost(Database):
        losses = 1

        @contextmanager
        def transaction(self) -> Iterator[Session]:
            with super().transaction() as session:
                yield session
                finished = session.scalar(select(func.count()).select_from(Result))
            if finished and self.losses:
                self.losses -= 1
                raise OperationalError("COMMIT", None, ConnectionError())

    (job_id,) = bench.jobs.submit("text")
    database = AnswerLost(postgres_url)
    bench.store = JobStore(database, "worker-a", LEASE)
    bench.runner().run(job_id)
    database.close()
    assert database.losses == 0
    assert bench.jobs.get(job_id).state == JobState.COMPLETED
    assert [attempt.outcome for attempt in bench.jobs.attempts(job_id)] == ["completed"]


def test_a_database_that_is_away_at_the_claim_drops_the_message_and_no_more(bench: Bench) -> None:
    (job_id,) = bench.jobs.submit("text")
    away = Database("postgresql://nobody@127.0.0.1:1/none")
    bench.store = JobStore(away, "worker-a", LEASE)
    bench.runner().run(job_id)
    away.close()
    assert bench.jobs.get(job_id).state == JobState.QUEUED
    assert bench.held.wait_until_empty(0)
