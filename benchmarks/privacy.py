"""The scrubber's speed, and Presidio beside it on the same texts in the same run.

`python -m benchmarks.privacy [--presidio PYTHON]`: PYTHON is an interpreter with `presidio-analyzer` installed, in an
environment of its own. Megabytes per CPU-second, medians of five passes, one thread. Recall is of the labelled texts in
`tests/data`, for the types both know.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shared.privacy import DEFAULT, STRICT, Policy, Scrubber, Span
from tests.pii_score import load_cases, score

ROOT = Path(__file__).parent.parent
SHARED_TYPES = ("EMAIL", "PHONE", "BANK_CARD", "IBAN", "US_SSN", "IP_ADDRESS", "MAC_ADDRESS")
PASSES = 5
MEGABYTE = 1e6
PROSE = ("docs/architecture.md", "docs/operations.md", "docs/privacy.md", "docs/privacy.zh-CN.md", "README.zh-CN.md")


def _size(texts: Sequence[str]) -> float:
    return sum(len(text.encode()) for text in texts) / MEGABYTE


def _speed(texts: Sequence[str], policy: Policy) -> float:
    """Return megabytes per CPU-second."""
    scrubber, rates = Scrubber(), []
    for _ in range(PASSES):
        started = time.process_time()
        for text in texts:
            scrubber.scrub(text, policy=policy)
        rates.append(_size(texts) / (time.process_time() - started))
    return statistics.median(rates)


def _presidio(python: str, texts: Sequence[str]) -> tuple[float, list[list[Span]]]:
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    command = [python, str(ROOT / "benchmarks" / "sides" / "presidio.py")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return _size(texts) / answer["seconds"], [[Span(*span) for span in spans] for spans in answer["spans"]]


def _recall(cases: list[dict[str, object]], spans: Sequence[list[Span]]) -> dict[str, float]:
    found = {str(case["text"]): found for case, found in zip(cases, spans, strict=True)}
    result = score(cases, lambda text: found[text], frozenset(SHARED_TYPES))
    return {entity: result.by_type[entity].recall for entity in SHARED_TYPES}


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presidio", metavar="PYTHON", help="interpreter with presidio-analyzer")
    python = parser.parse_args().presidio
    cases = load_cases("pii_gold.jsonl")
    labelled = [case["text"] for case in cases]
    prose = [(ROOT / name).read_text(encoding="utf-8") for name in PROSE]
    sys.stdout.write("| texts | default | strict (with names) |\n|---|---|---|\n")
    for name, texts in (("prose, English and Chinese", prose), ("labelled texts, dense with personal data", labelled)):
        sys.stdout.write(f"| {name} | {_speed(texts, DEFAULT):.2f} MB/s | {_speed(texts, STRICT):.3f} MB/s |\n")
    if python:
        english = [case for case in cases if case["lang"] == "en"]
        texts = [case["text"] for case in english]
        rate, spans = _presidio(python, texts)
        ours = _speed(texts, DEFAULT)
        prose_rate, _ = _presidio(python, prose[:3])
        sys.stdout.write(f"\nPresidio: {rate:.3f} MB/s on English labelled texts (ours {ours / rate:.0f}x), ")
        sys.stdout.write(f"{prose_rate:.3f} on English prose (ours {_speed(prose[:3], DEFAULT) / prose_rate:.0f}x)\n\n")
        mine, theirs = _recall(english, [Scrubber().detect(text) for text in texts]), _recall(english, spans)
        sys.stdout.write("| recall | Tokenmill | Presidio |\n|---|---|---|\n")
        for entity in SHARED_TYPES:
            sys.stdout.write(f"| {entity} | {mine[entity]:.3f} | {theirs[entity]:.3f} |\n")


if __name__ == "__main__":
    main()
