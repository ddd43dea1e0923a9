"""`tokenmill run` as a process, against the real API, with a stand-in for the worker that drives real leases."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared import api_keys
from shared.database import Database
from shared.settings import Settings
from tests.fleet import FleetProcess, keyring_of, wait_until
from tests.integration.api import tiny_model
from tests.integration.bulk_bench import EVERYTHING, Bench, LeaseWorker

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    tiny_model.install(path)
    return path


@pytest.fixture
def bench(settings: Settings, model_dir: Path, database: Database, tmp_path: Path) -> Iterator[Bench]:
    served = settings.model_copy(update={"model_dir": model_dir, "model": tiny_model.NAME})
    keyring = keyring_of(served)
    with database.transaction() as session:
        key = api_keys.create(session, keyring, "test", ["submit", "read"])
    worker = LeaseWorker(database, keyring)
    thread = threading.Thread(target=worker.run)
    with FleetProcess("api", settings=served, log=tmp_path / "api.log", api_port="0") as api:
        api.wait_for("api_listening")
        (listening,) = [line for line in api.log.read_text().splitlines() if "api_listening" in line]
        folder = tmp_path / "work"
        folder.mkdir()
        thread.start()
        try:
            bench = Bench(f"http://127.0.0.1:{json.loads(listening)['port']}", key, folder, worker)
            yield bench
            bench.close()
        finally:
            worker.stopped.set()
            thread.join()


def test_a_folder_becomes_one_line_per_document_in_order(bench: Bench) -> None:
    bench.write(40)
    code, stdout, stderr = bench.run("--in-flight", "8", "--json")
    assert code == 0, stderr
    bench.check_lines(40)
    summary = json.loads(stdout)
    assert (summary["documents"], summary["completed"], summary["failed"]) == (40, 40, 0)
    assert (summary["completion_tokens"], summary["entities"]) == (160, {"PHONE": 80})
    assert "40/40 documents" in stderr
    assert bench.lines()[7]["usage"]["prompt_tokens"] == 10


def test_a_repeated_command_runs_nothing_again(bench: Bench) -> None:
    bench.write(12)
    assert bench.run()[0] == 0
    before, first = bench.counts(), bench.out.read_bytes()
    code, stdout, _ = bench.run()
    assert (code, bench.counts(), bench.out.read_bytes()) == (0, before, first)
    assert "from an earlier run" in stdout
    bench.out.unlink()
    assert bench.run()[0] == 0
    assert (bench.counts(), bench.out.read_bytes()) == (before, first)


def test_killed_in_the_middle_and_resumed(bench: Bench) -> None:
    bench.write(40)
    bench.worker.below = "text 015"
    process = bench.start("--in-flight", "20")
    wait_until(lambda: bench.written() == 15, why="fifteen lines")
    process.kill()
    process.communicate()
    with bench.out.open("ab") as file:
        file.write(b'{"document": "torn", "ind')
    bench.worker.below = EVERYTHING
    assert bench.run("--in-flight", "20")[0] == 0
    bench.check_lines(40)
    assert bench.counts() == (40, 40)


def test_failures_are_told_and_run_again(bench: Bench) -> None:
    bench.write(10)
    (bench.folder / "in" / "004.txt").write_text("")
    bench.worker.fails = "text 007"
    code, stdout, _ = bench.run()
    assert code == 1
    assert "failed: 004.txt: the document is empty" in stdout
    assert "failed: 007.txt: the engine failed" in stdout
    assert [line["status"] for line in bench.lines()] == ["completed"] * 4 + ["failed"] + ["completed"] * 2 + [
        "failed"
    ] + ["completed"] * 2
    assert bench.counts() == (9, 9)
    bench.worker.fails = "no such text"
    (bench.folder / "in" / "004.txt").write_text("text 004")
    assert bench.run()[0] == 0
    bench.check_lines(10)
    assert bench.counts() == (10, 11)
    assert [path.name for path in bench.folder.iterdir() if path.name.startswith("out")] == ["out.jsonl"]


def test_a_document_too_long_for_the_model_fails_alone_and_is_not_quoted(bench: Bench) -> None:
    bench.write(3)
    (bench.folder / "in" / "001.txt").write_text("secret words " * 100)
    code, stdout, stderr = bench.run()
    assert code == 1
    assert bench.lines()[1]["error"]["code"] == "prompt_too_long"
    assert "secret words" not in stdout + stderr + json.dumps(bench.lines()[1])


def test_interrupted_says_how_to_resume(bench: Bench) -> None:
    bench.write(10)
    bench.worker.below = "text 004"
    process = bench.start()
    wait_until(lambda: bench.written() == 4, why="four lines")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "4 of 10 documents stand in out.jsonl" in stderr
    assert "run the same command again" in stderr
    assert "Traceback" not in stderr
    bench.worker.below = EVERYTHING
    assert bench.run()[0] == 0
    bench.check_lines(10)
    assert bench.counts() == (10, 10)


def test_a_run_name_runs_the_same_documents_anew(bench: Bench) -> None:
    bench.write(3)
    assert bench.run()[0] == 0
    code, _, stderr = bench.run("--run-name", "again")
    assert code == 2
    assert "--overwrite" in stderr
    assert bench.run("--run-name", "again", "--overwrite")[0] == 0
    assert bench.counts() == (6, 6)


@pytest.mark.parametrize(
    ("environment", "code", "said"),
    [
        ({"TOKENMILL_API_URL": "http://127.0.0.1:9"}, 3, "tokenmill up"),
        ({"TOKENMILL_API_KEY": "tm_0000_wrong"}, 4, "key"),
    ],
)
def test_without_a_fleet_or_a_key(bench: Bench, environment: dict[str, str], code: int, said: str) -> None:
    bench.write(1)
    returned, _, stderr = bench.run(**environment)
    assert (returned, bench.written()) == (code, 0)
    assert said in stderr
    assert "Traceback" not in stderr


def test_usage_errors(bench: Bench) -> None:
    bench.write(1)
    for options in (
        ["--max-tokens", "0"],
        ["--model", "absent"],
        ["--temperature", "-1"],
        ["--in-flight", "0"],
        ["no"],
    ):
        code, _, stderr = bench.run(*options)
        assert code == 2, (options, stderr)
        assert "Traceback" not in stderr


def test_a_dry_run_needs_no_fleet_and_no_result_file(bench: Bench) -> None:
    bench.write(5)
    code, stdout, _ = bench.run("--dry-run", "--json", TOKENMILL_API_URL="http://127.0.0.1:9")
    assert (code, json.loads(stdout)) == (0, {"documents": 5, "characters": 40, "faulty": 0})
    assert not bench.out.exists()


@pytest.mark.parametrize("script", ["submit_and_poll.py", "bulk_jsonl.py"])
def test_the_example_scripts_work(bench: Bench, script: str) -> None:
    examples = Path(__file__).parents[2] / "examples"
    source = bench.folder / "in.jsonl"
    source.write_text("".join(json.dumps({"id": str(n), "text": f"text {n}"}) + "\n" for n in range(70)))
    (bench.folder / "one.txt").write_text("one text")
    arguments = ["one.txt"] if script == "submit_and_poll.py" else [source.name, bench.out.name]
    environment = {**os.environ, "TOKENMILL_API_URL": bench.url, "TOKENMILL_API_KEY": bench.key}
    done = subprocess.run(
        [sys.executable, examples / script, *arguments],
        cwd=bench.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if script == "submit_and_poll.py":
        assert "one text" in done.stdout
        assert "PHONE" in done.stderr
    else:
        assert [line["output"].split()[-1] for line in bench.lines()] == [f"{number}>" for number in range(70)]
