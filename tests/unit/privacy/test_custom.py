"""Recognizers from YAML: found on the folded view, with context where they are unsure; wrong files are named."""

from pathlib import Path

import pytest

from shared.errors import ConfigurationError
from shared.privacy import Policy, Scrubber
from shared.privacy.recognizers import BUILT_IN
from shared.privacy.recognizers.custom import custom_recognizers

EMPLOYEES = """
recognizers:
  - name: Employee number
    supported_entity: EMPLOYEE_NO
    patterns:
      - {name: with prefix, regex: "EMP-[0-9]{6}", score: 0.8}
      - {name: bare, regex: "[0-9]{6}", score: 0.2}
    context: [employee, 工号]
  - name: Ticket
    supported_entity: TICKET
    patterns: [{name: ticket, regex: "T[0-9]{4}", score: 1}]
    validator: luhn
"""


def scrubber(tmp_path: Path, content: str = EMPLOYEES) -> Scrubber:
    path = tmp_path / "recognizers.yaml"
    path.write_text(content, encoding="utf-8")
    return Scrubber((*BUILT_IN, *custom_recognizers(path)))


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("see emp-123456.", "see <EMPLOYEE_NO_1>."),
        ("见ＥＭＰ－１２３４５６。", "见<EMPLOYEE_NO_1>。"),
        ("工号123456", "工号<EMPLOYEE_NO_1>"),
        ("order 123456", "order 123456"),
        ("xEMP-123456", "xEMP-123456"),
        ("T0000 and T0001", "<TICKET_1> and T0001"),
        ("工号123456，电话13812345678", "工号<EMPLOYEE_NO_1>，电话<PHONE_1>"),
    ],
)
def test_custom_values_are_replaced(tmp_path: Path, text: str, scrubbed: str) -> None:
    assert scrubber(tmp_path).scrub(text).text == scrubbed


def test_policies_know_custom_entities(tmp_path: Path) -> None:
    policy = Policy.model_validate({"actions": {"EMPLOYEE_NO": "redact"}})
    assert scrubber(tmp_path).scrub("EMP-123456", policy=policy).text == "<EMPLOYEE_NO>"


def test_no_file_means_none() -> None:
    assert custom_recognizers(None) == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (EMPLOYEES.replace("EMP-[0-9]{6}", "(?<!x)EMP"), "'with prefix' of recognizer 'Employee number' is not RE2"),
        (EMPLOYEES.replace("EMP-[0-9]{6}", "(a+)\\\\1"), "not RE2"),
        (EMPLOYEES.replace("score: 0.8", "score: 8"), "recognizers.0.patterns.0.score"),
        (EMPLOYEES.replace("EMPLOYEE_NO", "employee"), "recognizers.0.supported_entity"),
        (EMPLOYEES.replace("luhn", "none"), "recognizers.1.validator"),
        ("recognizers: [", "no YAML"),
        ("- a", "the file"),
    ],
)
def test_a_wrong_file_says_where(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        scrubber(tmp_path, content)
    assert refused.value.field == "privacy_recognizers"


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml cannot be read"):
        custom_recognizers(tmp_path / "absent.yaml")
