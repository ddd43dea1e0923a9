import json
import tracemalloc
from pathlib import Path

import pytest

from cli.bulk.document import MAX_DOCUMENT_BYTES, Document
from cli.bulk.inputs import Inputs
from shared.errors import InvalidInputError


def read(*paths: Path, **columns: str) -> list[Document]:
    inputs = Inputs(paths, **columns)
    inputs.check()
    documents = list(inputs.documents())
    assert inputs.count() == len(documents)
    assert [document.index for document in documents] == list(range(len(documents)))
    return documents


def named(documents: list[Document]) -> list[tuple[str, str]]:
    return [(document.name, document.text) for document in documents]


def fault(document: Document) -> tuple[str, str]:
    assert document.fault is not None
    assert document.text == ""
    return document.fault.code, document.fault.message


def test_folder_is_recursive_sorted_and_takes_text_only(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.md").write_text("two")
    (tmp_path / "c.txt").write_text("three")
    (tmp_path / "a.TXT").write_text("one")
    (tmp_path / "skipped.pdf").write_text("no")
    assert named(read(tmp_path)) == [("a.TXT", "one"), ("b/2.md", "two"), ("c.txt", "three")]


def test_inputs_keep_the_order_given_and_count_over_all(tmp_path: Path) -> None:
    (tmp_path / "z.txt").write_text("first")
    (tmp_path / "a.jsonl").write_text('{"text": "second"}\n\n{"id": 7, "text": "third"}')
    documents = read(tmp_path / "z.txt", tmp_path / "a.jsonl")
    assert named(documents) == [("z.txt", "first"), ("a.jsonl:1", "second"), ("7", "third")]


def test_jsonl_takes_the_columns_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"body": "text one", "key": "k1", "text": "not this"}\n')
    assert named(read(path, text_column="body", id_column="key")) == [("k1", "text one")]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{broken", "invalid_json_line"),
        ("[1]", "invalid_json_line"),
        ('"text"', "invalid_json_line"),
        ("[" * 100_000, "invalid_json_line"),
        ('{"other": "x"}', "missing_text"),
        ('{"text": 5}', "missing_text"),
        ('{"text": "  "}', "empty_document"),
        ('{"text": "a\\ud800b"}', "invalid_text"),
    ],
)
def test_a_bad_jsonl_line_fails_alone(tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(f'{{"text": "good"}}\n{line}\n{{"text": "good too"}}\n')
    documents = read(path)
    assert [document.text for document in documents] == ["good", "", "good too"]
    assert fault(documents[1])[0] == code
    assert documents[1].name == "in.jsonl:2"


def test_csv_with_quotes_newlines_and_bom(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'\xef\xbb\xbfid,text\r\na,"one, ""two""\r\nthree"\r\n\r\n,last\r\n')
    assert named(read(path)) == [("a", 'one, "two"\r\nthree'), ("in.csv:2", "last")]


def test_tsv_and_a_row_too_short(tmp_path: Path) -> None:
    path = tmp_path / "in.tsv"
    path.write_text("id\tnote\na\tone, two\nb\n")
    documents = read(path, text_column="note")
    assert documents[0].text == "one, two"
    assert fault(documents[1])[0] == "missing_text"


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    (tmp_path / "b.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "hello"}\n')
    assert [document.text for document in read(tmp_path / "a.txt", tmp_path / "b.jsonl")] == ["hello", "hello"]


def test_another_encoding_is_named_with_its_byte_offset(tmp_path: Path) -> None:
    chinese = "病历".encode("gb18030")
    (tmp_path / "a.txt").write_bytes(b"note: " + chinese)
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "ok"}\n{"text": "' + chinese + b'"}\n{"text": "ok"}\n')
    (tmp_path / "c.csv").write_bytes(b'text\nok\n"two\n' + chinese + b'"\nok\n')
    documents = read(tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "c.csv")
    faulty = [document for document in documents if document.fault]
    assert [fault(document)[0] for document in faulty] == ["not_utf8"] * 3
    assert ["a.txt is not UTF-8 at byte 6" in fault(faulty[0])[1], "byte 25" in fault(faulty[1])[1]] == [True, True]
    assert "c.csv is not UTF-8 at byte 13" in fault(faulty[2])[1]
    assert [document.text for document in documents].count("ok") == 4


def test_byte_offsets_count_the_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "\xff"}\n')
    assert "at byte 13" in fault(read(tmp_path / "a.jsonl")[0])[1]


def test_empty_and_blank_files_are_faults_of_their_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.md").write_text(" \n\t")
    (tmp_path / "c.jsonl").write_text("")
    assert [fault(document)[0] for document in read(tmp_path)] == ["empty_document"] * 2
    assert read(tmp_path / "c.jsonl") == []


def test_an_oversized_document_is_refused_and_the_next_line_is_found(tmp_path: Path) -> None:
    huge = "x" * (MAX_DOCUMENT_BYTES + 10)
    (tmp_path / "a.jsonl").write_text(f'{{"text": "{huge}"}}\n{{"text": "next"}}\n')
    (tmp_path / "b.txt").write_text(huge)
    documents = read(tmp_path / "a.jsonl", tmp_path / "b.txt")
    assert [fault(documents[0])[0], documents[1].text, fault(documents[2])[0]] == [
        "document_too_large",
        "next",
        "document_too_large",
    ]


def test_memory_is_bounded_for_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("w") as file:
        for number in range(20_000):
            file.write(json.dumps({"id": str(number), "text": "y" * 2000}) + "\n")
    inputs = Inputs([path])
    tracemalloc.start()
    try:
        assert inputs.count() == sum(1 for _ in inputs.documents()) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("absent.txt", None, "does not exist"),
        ("paper.pdf", b"x", "unknown kind"),
        ("in.csv", b"id,body\n1,x\n", "has no column 'text'"),
        ("empty.csv", b"", "is empty"),
        ("gb.csv", "编号,text\n".encode("gb18030"), "not UTF-8 at byte 0"),
    ],
)
def test_what_cannot_be_read_at_all_is_refused_first(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=said):
        Inputs([tmp_path / name]).check()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"holds no \.txt or \.md"):
        Inputs([tmp_path]).check()


def test_broken_quoting_is_found_by_the_count_before_anything_is_submitted(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('text\nfine\n"never closed\n')
    with pytest.raises(InvalidInputError, match="malformed at line 3"):
        Inputs([path]).count()
