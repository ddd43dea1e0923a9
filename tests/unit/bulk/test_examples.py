"""The example documents: enough of them, short, and invented by the rules for invented data."""

import ipaddress
import re
from pathlib import Path

import pytest
from stdnum import luhn
from stdnum.cn import ric

DOCUMENTS = sorted((Path(__file__).parents[3] / "examples" / "documents").iterdir())
TEXTS = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
TEST_NETWORKS = [ipaddress.ip_network(net) for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]


def found(pattern: str) -> list[str]:
    return [match for text in TEXTS for match in re.findall(pattern, text)]


def test_twenty_documents_half_of_them_chinese() -> None:
    assert (len(TEXTS), sum(bool(CHINESE.search(text)) for text in TEXTS)) == (20, 10)


@pytest.mark.parametrize("text", TEXTS, ids=[path.stem for path in DOCUMENTS])
def test_documents_are_short(text: str) -> None:
    if CHINESE.search(text):
        assert 100 <= len(text.strip()) <= 250
    else:
        assert 60 <= len(text.split()) <= 150


def test_identifiers_have_valid_check_digits() -> None:
    resident_numbers = found(r"(?<!\d)\d{17}[\dX](?!\d)")
    cards = [card.replace(" ", "") for card in found(r"(?<!\d)(?:\d{19}|(?:\d{4} ){3}\d{4})(?!\d)")]
    assert len(resident_numbers) >= 5
    assert len(cards) >= 5
    assert [number for number in resident_numbers if not ric.is_valid(number)] == []
    assert [card for card in cards if not luhn.is_valid(card)] == []


def test_addresses_belong_to_nobody() -> None:
    addresses = [ipaddress.ip_address(address) for address in found(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]\d)")]
    domains = found(r"@([\w.-]+\w)")
    telephones = found(r"\(?\b\d{3}\)?[- ]555[- ]\d{4}")
    assert len(addresses) >= 5
    assert all(any(address in network for network in TEST_NETWORKS) for address in addresses)
    assert len(domains) >= 15
    assert all(re.search(r"(^|\.)example(\.com|\.net|\.org)?$", domain) for domain in domains)
    assert len(telephones) >= 9
    assert all(re.search(r"555[- ]01\d\d$", telephone) for telephone in telephones)
