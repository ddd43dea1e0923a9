import json

import pytest

from shared.privacy import Scrubber
from workers.engine.logprobs import TokenLogprob
from workers.engine.sequence import GenerationOutput
from workers.job_output import OutputScrubber, stored_choice


class Texts:
    """Tokens are bytes."""

    def bytes_of(self, token_id: int) -> bytes:
        return bytes([token_id])


def output(text: str) -> GenerationOutput:
    ids = tuple(text.encode())
    logprobs = tuple(TokenLogprob(token, -0.5, ((token, -0.5), (65, -2.0))) for token in ids)
    return GenerationOutput(ids, text, "stop", 1, 0, len(ids), 0, 0, 0, 0, logprobs)


def scrubber() -> OutputScrubber:
    return OutputScrubber(Scrubber(), {})


def test_log_probabilities_have_openai_s_shape() -> None:
    stored = stored_choice(output("é"), scrubber(), Texts())
    first, _ = stored["logprobs"]["content"]
    assert first == {
        "token": "\N{REPLACEMENT CHARACTER}",
        "logprob": -0.5,
        "bytes": [0xC3],
        "top_logprobs": [
            {"token": "\N{REPLACEMENT CHARACTER}", "logprob": -0.5, "bytes": [0xC3]},
            {"token": "A", "logprob": -2.0, "bytes": [65]},
        ],
    }


def test_log_probabilities_never_tell_what_was_scrubbed() -> None:
    stored = stored_choice(output("ask john.roe@example.org"), scrubber(), Texts())
    assert stored == {"text": "ask <EMAIL_1>", "finish_reason": "stop", "logprobs": None}


def test_the_same_value_is_the_same_placeholder_in_all_outputs() -> None:
    shared = scrubber()
    texts = [shared.scrub(text) for text in ("b@example.org", "a@example.org, b@example.org")]
    assert texts == ["<EMAIL_1>", "<EMAIL_2>, <EMAIL_1>"]
    assert shared.entities == {"EMAIL": 3}


@pytest.mark.parametrize(
    "document",
    [
        {"card": 4111111111111111, "mail": "bob@example.com", "n": 3},
        {"cards": [4111111111111111, -1.5e3], "said": 'a "quote" <PHONE_7> \\'},
        ["+1 415 555 0132", {"phone": 4155550132}],
    ],
)
def test_json_stays_json_when_a_number_is_taken_out(document: object) -> None:
    scrubbed = scrubber().scrub(json.dumps(document))
    assert scrubbed != json.dumps(document)
    assert not {"4111111111111111", "bob@example.com", "4155550132"} & set(scrubbed.replace('"', " ").split())
    json.loads(scrubbed)


def test_text_that_is_no_json_is_scrubbed_as_before() -> None:
    assert scrubber().scrub('say "x" to 4111111111111111') == 'say "x" to <BANK_CARD_1>'
