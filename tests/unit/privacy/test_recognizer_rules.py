# full-width forms are what is tested
"""Rules that every recognizer module keeps."""

import re
import time
from pathlib import Path

import pytest
import re2

from shared.privacy import Scrubber, recognizers
from shared.privacy.names.han_names import HanNames
from shared.privacy.names.latin_names import LatinNames
from shared.privacy.recognizers.recognizer import Finder, Recognizer
from shared.privacy.span import PRIORITY

MODULES = sorted(Path(recognizers.__file__).parent.glob("*.py"))
SCRUBBER = Scrubber()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_class_that_fails_between_chinese_and_digits(module: Path) -> None:
    code = "\n".join(line for line in module.read_text().split("\n") if not line.lstrip().startswith("#"))
    assert not re.search(r"\\[bwdBWD]", code)


def test_every_entity_has_a_priority() -> None:
    assert {recognizer.entity for recognizer in recognizers.BUILT_IN} <= set(PRIORITY)


def test_a_backtracking_pattern_is_refused() -> None:
    with pytest.raises(re2.error):
        Recognizer.of("PHONE", r"(?<![0-9])([0-9]+)", lambda candidate: candidate)


UNITS = (".", "1", "@", "1.", "a@", "1@", "12 ", "138 1234 ", "4111-", "+1 ", ":1", "://a:b@", "a://b@", "(0", "x@y.")


@pytest.mark.parametrize("unit", [*UNITS, "13812345678 ", "\u200b", "１", "<PHONE_1>", "tel 1 ", "版本1.1.1.1"])
def test_time_is_linear(unit: str) -> None:
    """Four times the text may cost at most twelve times the time: quadratic work would cost sixteen.

    Time of this process only, and a quarter of a second is forgiven, so that a busy machine fails nothing.
    """
    short = unit * (20_000 // len(unit))
    fastest = [min(_seconds(short * times) for _ in range(2)) for times in (1, 4)]
    assert fastest[1] < 12 * fastest[0] + 0.25


LATIN_UNITS = ("A", "Ann ", "Ann Lee ", "A. ", "Mr. ", "A'", "O'A", "name: ")
NAME_UNITS = (*LATIN_UNITS, "张", "张伟", "张,", "张伟,1234567 ", "姓名：张", "、张伟")


@pytest.mark.parametrize("unit", NAME_UNITS)
@pytest.mark.parametrize("names", [LatinNames(), HanNames()], ids=["latin", "han"])
def test_time_is_linear_with_names_too(unit: str, names: Finder) -> None:
    short = unit * (1500 // len(unit))
    scrubber = Scrubber([names])
    fastest = [min(_seconds(short * times, scrubber) for _ in range(2)) for times in (1, 4)]
    assert fastest[1] < 12 * fastest[0] + 0.25


def _seconds(text: str, scrubber: Scrubber = SCRUBBER) -> float:
    started = time.process_time()
    scrubber.scrub(text)
    return time.process_time() - started
