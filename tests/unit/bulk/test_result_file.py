from pathlib import Path

import pytest

from cli.bulk import record as records
from cli.bulk.document import Document, Fault
from cli.bulk.earlier_records import WINDOW
from cli.bulk.plan import Plan
from cli.bulk.result_file import ResultFile
from shared.errors import InvalidInputError

PLAN = Plan("Summarise:")


def document(index: int, name: str | None = None) -> Document:
    return Document(index, name or f"doc-{index}", f"text of {name or index}")


def result(of: Document, plan: Plan = PLAN) -> records.Record:
    return records.of_job(
        of, plan.key_of(of), {"id": f"job-{of.name}", "status": "completed", "output": f"out {of.name}"}
    )


def failure(of: Document) -> records.Record:
    return records.of_fault(of, PLAN.key_of(of), Fault("empty_document", "empty"))


def opened(path: Path, plan: Plan = PLAN, **options: bool) -> ResultFile:
    return ResultFile(path, plan.digest, **options)


def rerun(path: Path, documents: list[Document], stop_after: int | None = None) -> list[str]:
    """Run as the bulk run does; return the names that had to run."""
    ran: list[str] = []
    with opened(path) as results:
        for position, one in enumerate(documents):
            if position == stop_after:
                return ran
            reused = results.take(PLAN.key_of(one))
            if reused is None:
                ran.append(one.name)
            if reused is None or not reused.in_place:
                results.append({**reused.record, "index": one.index} if reused else result(one))
        results.finish()
    return ran


def lines(path: Path) -> list[records.Record]:
    found = [records.from_line(line) for line in path.read_bytes().splitlines()]
    assert None not in found
    return [record for record in found if record]


def check_final(path: Path, documents: list[Document]) -> None:
    assert [(line["document"], line["index"], line["output"]) for line in lines(path)] == [
        (one.name, one.index, f"out {one.name}") for one in documents
    ]
    assert [other.name for other in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "torn", [b"", b'{"document": "doc-3", "ind', b'{"document": "doc-3", "index": 3, "output": "x"}']
)
def test_resumes_behind_the_last_whole_line(tmp_path: Path, torn: bytes) -> None:
    documents = [document(index) for index in range(6)]
    path = tmp_path / "out.jsonl"
    assert rerun(path, documents, stop_after=3) == ["doc-0", "doc-1", "doc-2"]
    with path.open("ab") as file:
        file.write(torn)
    assert rerun(path, documents) == ["doc-3", "doc-4", "doc-5"]
    check_final(path, documents)
    assert rerun(path, documents) == []
    check_final(path, documents)


def test_a_torn_first_line_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"docu')
    assert rerun(path, [document(0)]) == ["doc-0"]
    check_final(path, [document(0)])


def test_a_torn_line_longer_than_a_block_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    rerun(path, [document(0), document(1)], stop_after=1)
    with path.open("ab") as file:
        file.write(b'{"document": "' + b"x" * 200_000)
    assert rerun(path, [document(0), document(1)]) == ["doc-1"]
    check_final(path, [document(0), document(1)])


def with_failures(path: Path, count: int, failed: set[int]) -> list[Document]:
    documents = [document(index) for index in range(count)]
    with opened(path) as results:
        for one in documents:
            results.take(PLAN.key_of(one))
            results.append(failure(one) if one.index in failed else result(one))
        results.finish()
    return documents


def test_failed_lines_run_again_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    documents = with_failures(path, 10, {2, 7})
    assert rerun(path, documents) == ["doc-2", "doc-7"]
    check_final(path, documents)


@pytest.mark.parametrize("stop", [0, 1, 2, 3, 5, 7, 8, 9])
def test_a_rebuild_stopped_anywhere_loses_nothing(tmp_path: Path, stop: int) -> None:
    path = tmp_path / "out.jsonl"
    documents = with_failures(path, 10, {2, 7})
    ran = rerun(path, documents, stop_after=stop)
    ran += rerun(path, documents, stop_after=stop)
    ran += rerun(path, documents)
    assert ran == ["doc-2", "doc-7"]
    check_final(path, documents)


def test_a_second_rebuild_inside_a_stopped_one_keeps_both_tails(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    count = 2 * WINDOW + 100
    documents = with_failures(path, count, {1, count - 2})
    rerun(path, documents, stop_after=WINDOW + 50)
    changed = [document(0), document(1, "changed"), *documents[2:]]
    assert rerun(path, changed) == ["changed", f"doc-{count - 2}"]
    check_final(path, changed)


def test_added_and_removed_documents_cost_only_themselves(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    names = [f"n{number}" for number in range(8)]
    rerun(path, [document(index, name) for index, name in enumerate(names)])
    names = ["new", *names[:3], *names[5:], "last"]
    documents = [document(index, name) for index, name in enumerate(names)]
    assert rerun(path, documents) == ["new", "last"]
    check_final(path, documents)


def test_documents_removed_from_the_end_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    documents = [document(index) for index in range(4)]
    rerun(path, documents)
    assert rerun(path, documents[:2]) == []
    check_final(path, documents[:2])


def test_duplicates_keep_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    twins = [document(0, "same"), document(1, "same"), document(2, "other")]
    rerun(path, twins)
    assert rerun(path, twins) == []
    check_final(path, twins)


def test_another_plans_results_are_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    rerun(path, [document(0)])
    before = path.read_bytes()
    other = Plan("Translate:")
    with pytest.raises(InvalidInputError, match="another instruction"):
        opened(path, other)
    assert path.read_bytes() == before
    with opened(path, other, overwrite=True) as results:
        assert results.take(other.key_of(document(0))) is None


@pytest.mark.parametrize("content", [b"id,text\n1,x\n", b'{"text": "mine"}\n', b"no newline"])
def test_a_file_that_is_no_result_file_is_never_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="no result file"):
        opened(path)
    assert path.read_bytes() == content


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with opened(path), pytest.raises(InvalidInputError, match="another run is writing"):
        opened(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be written"):
        opened(tmp_path / "absent" / "out.jsonl")


def test_keys_tell_plans_names_and_texts_apart() -> None:
    one = Document(0, "a", "text")
    plans = [Plan("x"), Plan("y"), Plan("x", "m"), Plan("x", None, {"max_tokens": 5}), Plan("x", name="again")]
    keys = {plan.key_of(one) for plan in plans}
    keys |= {plans[0].key_of(other) for other in (Document(0, "b", "text"), Document(0, "a", "text2"))}
    assert len(keys) == 7
    assert plans[0].key_of(one) == Plan("x").key_of(Document(9, "a", "text"))


@pytest.mark.parametrize("name", ["bad\udcff.txt", "\ud800", "名\udc80"])
def test_a_name_that_is_no_unicode_is_kept_as_an_escape(tmp_path: Path, name: str) -> None:
    assert rerun(tmp_path / "out.jsonl", [document(0, name)]) == [name]
    assert rerun(tmp_path / "out.jsonl", [document(0, name)]) == []
    line = (tmp_path / "out.jsonl").read_bytes()
    assert line.count(b"\n") == 1
    read = records.from_line(line)
    assert read is not None
    assert read["document"] == name


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_no_result_file(device: str) -> None:
    with pytest.raises(InvalidInputError):
        opened(Path(device))
