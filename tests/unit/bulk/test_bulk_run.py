import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.bulk.bulk_run import BulkRun
from cli.bulk.document import Document, fault_in
from cli.bulk.fleet_client import FleetClient
from cli.bulk.plan import Plan
from cli.bulk.result_file import ResultFile
from cli.bulk.tally import Tally
from shared.errors import AuthenticationError, ConfigurationError, ModelNotFoundError, ServiceUnavailableError
from tests.unit.bulk.small_fleet import INSTRUCTION, SmallFleet, serving

PLAN = Plan(INSTRUCTION)


class Quiet:
    """A watcher that remembers what stood in the way."""

    def __init__(self) -> None:
        self.troubles: set[str] = set()

    def show(self, tally: Tally, trouble: str | None) -> None:
        assert tally.done <= tally.total
        self.troubles |= {trouble} if trouble else set()


@pytest.fixture
def fleet() -> SmallFleet:
    return SmallFleet()


@pytest.fixture
def url(fleet: SmallFleet) -> Iterator[str]:
    with serving(fleet) as url:
        yield url


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def documents(*texts: str) -> list[Document]:
    return [Document(index, f"d{index}", text, fault_in(text)) for index, text in enumerate(texts)]


def numbered(count: int) -> list[Document]:
    return documents(*(f"t{index}" for index in range(count)))


def run(url: str, out: Path, of: list[Document], watcher: Quiet | None = None, **options: float) -> Tally:
    tally = Tally(len(of))
    limits = {name: options.get(name, 5.0) for name in ("first_limit", "outage_limit")}
    client = FleetClient(url, "tm_test_secret", **limits)

    async def process() -> None:
        async with client:
            with ResultFile(out, PLAN.digest) as results:
                in_flight, stall = int(options.get("in_flight", 16)), options.get("stall_limit")
                bulk = BulkRun(client, PLAN, results, tally, in_flight=in_flight, stall_limit=stall)
                await bulk.run(of, watcher or Quiet())

    asyncio.run(process())
    return tally


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_bytes().splitlines()]


def test_one_line_per_document_in_input_order(fleet: SmallFleet, url: str, out: Path) -> None:
    fleet.polls_needed = {"t0": 5, "t3": 2, "t20": 9}
    tally = run(url, out, numbered(60))
    found = lines(out)
    assert [(line["document"], line["index"]) for line in found] == [(f"d{index}", index) for index in range(60)]
    assert [line["output"] for line in found] == [f"<t{index}>" for index in range(60)]
    names = ["document", "index", "status", "output", "finish_reason", "usage", "privacy", "job_id", "error", "key"]
    assert list(found[0]) == names
    assert (tally.completed, tally.failed, tally.prompt_tokens, tally.completion_tokens) == (60, 0, 300, 180)
    assert tally.entities == {"EMAIL": 60}


def test_never_more_in_flight_than_allowed(fleet: SmallFleet, url: str, out: Path) -> None:
    run(url, out, numbered(50), in_flight=7)
    assert 2 <= fleet.most_unfinished <= 7


def test_a_repeated_run_asks_for_nothing(fleet: SmallFleet, url: str, out: Path) -> None:
    run(url, out, numbered(20))
    before = fleet.posts
    tally = run(url, out, numbered(20))
    assert (fleet.posts, tally.reused, tally.completed) == (before, 20, 20)
    assert tally.entities == {"EMAIL": 20}


def test_without_its_file_a_repeated_run_gets_the_same_jobs(fleet: SmallFleet, url: str, out: Path) -> None:
    run(url, out, numbered(20))
    before = lines(out)
    out.unlink()
    run(url, out, numbered(20))
    assert lines(out) == before
    assert set(fleet.generated.values()) == {1}


def test_a_failure_is_a_line_and_runs_again_next_time(fleet: SmallFleet, url: str, out: Path) -> None:
    fleet.fails = {"t3"}
    tally = run(url, out, numbered(6))
    assert (tally.completed, tally.failed) == (5, 1)
    assert tally.failures == [("d3", "failed by the test")]
    assert lines(out)[3]["error"]["code"] == "generation_failed"
    assert (lines(out)[3]["status"], lines(out)[3]["output"]) == ("failed", None)
    fleet.fails = set()
    tally = run(url, out, numbered(6))
    assert (tally.completed, tally.reused, fleet.retries) == (6, 5, 1)
    assert fleet.generated == {**dict.fromkeys(fleet.generated, 1), "t3": 2}
    assert [line["output"] for line in lines(out)] == [f"<t{index}>" for index in range(6)]


def test_an_empty_document_is_a_failed_line_and_no_job(fleet: SmallFleet, url: str, out: Path) -> None:
    tally = run(url, out, documents("one", " ", "two"))
    assert (tally.completed, tally.failures[0][0]) == (2, "d1")
    assert (lines(out)[1]["error"]["code"], lines(out)[1]["job_id"], fleet.posts) == ("empty_document", None, 2)


def test_a_refused_document_fails_alone(fleet: SmallFleet, url: str, out: Path) -> None:
    fleet.refuses = {"t1": (400, "prompt_too_long")}
    tally = run(url, out, numbered(3))
    assert (tally.completed, lines(out)[1]["error"]["code"]) == (2, "prompt_too_long")


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        ((401, "invalid_api_key"), AuthenticationError),
        ((400, "model_not_found"), ModelNotFoundError),
        ((404, "http_404"), ConfigurationError),
    ],
)
def test_what_every_document_would_meet_stops_the_run(
    fleet: SmallFleet, url: str, out: Path, refusal: tuple[int, str], error: type[Exception]
) -> None:
    fleet.refuses = {f"t{index}": refusal for index in range(10, 50)}
    with pytest.raises(error):
        run(url, out, numbered(50), in_flight=4)
    assert len(lines(out)) <= 10
    fleet.refuses = {}
    run(url, out, numbered(50))
    assert set(fleet.generated.values()) == {1}
    assert len(lines(out)) == 50


def test_a_busy_fleet_is_waited_for(fleet: SmallFleet, url: str, out: Path) -> None:
    fleet.answers = [(429, {"Retry-After": "1"}), (503, {"Retry-After": "0"}), (502, {})]
    started = time.monotonic()
    watcher = Quiet()
    tally = run(url, out, numbered(1), watcher)
    assert tally.completed == 1
    assert time.monotonic() - started >= 1
    assert "the fleet's queue is full" in watcher.troubles


def test_a_full_queue_outlasts_the_outage_limit(fleet: SmallFleet, url: str, out: Path) -> None:
    fleet.answers = [(429, {"Retry-After": "0"})] * 8
    assert run(url, out, numbered(1), outage_limit=0.3).completed == 1


def test_one_document_the_api_always_fails_on_does_not_hold_up_the_rest(fleet: SmallFleet, url: str, out: Path) -> None:
    fleet.refuses = {"t2": (500, "internal_error")}
    fleet.polls_needed = {"t4": 200}
    tally = run(url, out, numbered(6), outage_limit=0.5)
    assert (tally.completed, tally.failures[0][0]) == (5, "d2")


def test_no_fleet_is_said_within_the_first_limit(out: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match="tokenmill up"):
        run(f"http://127.0.0.1:{port}", out, numbered(3), first_limit=0.3, outage_limit=60)
    assert time.monotonic() - started < 10


def test_a_fleet_that_restarts_is_waited_for(fleet: SmallFleet, out: Path) -> None:
    fleet.finishing.clear()

    async def story() -> Tally:
        with serving(fleet) as url:
            port = int(url.rsplit(":", 1)[1])
            running = asyncio.create_task(asyncio.to_thread(run, url, out, numbered(30), outage_limit=30))
            while fleet.posts < 16:  # noqa: ASYNC110  # the server is a thread and knows no event of this loop
                await asyncio.sleep(0.01)
        fleet.finishing.set()
        await asyncio.sleep(0.5)
        with serving(fleet, port):
            return await running

    tally = asyncio.run(story())
    assert (tally.completed, set(fleet.generated.values())) == (30, {1})


def test_a_stuck_fleet_is_given_up_on_and_resumed(fleet: SmallFleet, url: str, out: Path) -> None:
    fleet.finishing.clear()
    with pytest.raises(ServiceUnavailableError, match="no job ended"):
        run(url, out, numbered(20), stall_limit=0.5)
    fleet.finishing.set()
    assert run(url, out, numbered(20)).completed == 20
    assert (len(fleet.jobs), set(fleet.generated.values())) == (20, {1})


def test_equal_documents_share_a_job_and_have_a_line_each(fleet: SmallFleet, url: str, out: Path) -> None:
    twins = [Document(0, "same", "text"), Document(1, "same", "text"), Document(2, "same", "other text")]
    run(url, out, twins)
    assert [(line["index"], line["output"]) for line in lines(out)] == [
        (0, "<text>"),
        (1, "<text>"),
        (2, "<other text>"),
    ]
    assert fleet.generated == {"text": 1, "other text": 1}


def test_the_server_learns_no_plain_digest(fleet: SmallFleet, url: str, out: Path) -> None:
    run(url, out, numbered(1))
    (sent,) = fleet.by_key
    assert lines(out)[0]["key"] not in sent
    assert sent.startswith("run-")
