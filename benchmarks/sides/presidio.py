"""Presidio on texts from standard input, one JSON string a line; runs in an environment of its own.

Its default English recognizers on a blank spaCy pipeline: the trained ones are no packages of the index, and only names
and places need them. Prints the seconds of one pass and every span found.
"""

import json
import sys
import time

import spacy  # type: ignore[import-not-found,unused-ignore]
from presidio_analyzer import AnalyzerEngine  # type: ignore[import-not-found,unused-ignore]
from presidio_analyzer.nlp_engine import SpacyNlpEngine  # type: ignore[import-not-found,unused-ignore]

OURS = {
    "EMAIL_ADDRESS": "EMAIL",
    "PHONE_NUMBER": "PHONE",
    "CREDIT_CARD": "BANK_CARD",
    "IBAN_CODE": "IBAN",
    "US_SSN": "US_SSN",
    "IP_ADDRESS": "IP_ADDRESS",
    "MAC_ADDRESS": "MAC_ADDRESS",
}


class _Blank(SpacyNlpEngine):  # type: ignore[misc,unused-ignore]
    def load(self) -> None:
        self.nlp = {"en": spacy.blank("en")}


def main() -> None:
    """Analyze once to warm up, once more to measure."""
    texts = [json.loads(line) for line in sys.stdin]
    engine = _Blank()
    engine.load()
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
    analyzer.analyze(texts[0], language="en", entities=list(OURS))
    started = time.process_time()
    found = [analyzer.analyze(text, language="en", entities=list(OURS)) for text in texts]
    seconds = time.process_time() - started
    spans = [[(result.start, result.end, OURS[result.entity_type]) for result in results] for results in found]
    json.dump({"seconds": seconds, "spans": spans}, sys.stdout)


if __name__ == "__main__":
    main()
