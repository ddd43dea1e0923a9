"""Bodies that are cheap to send must be cheap to refuse, and a name is no way to smuggle a value into a message."""

import json
import time
from collections.abc import Callable

import pytest

from api.json_body import parse
from api.prompt_budget import PromptBudget
from api.schemas import JobRequest
from shared.errors import InvalidInputError, PromptTooLongError
from shared.sampling import SamplingParams
from shared.settings import Settings
from tests.integration.api import tiny_model


def cpu_seconds(act: Callable[[], object]) -> float:
    started = time.process_time()
    act()
    return time.process_time() - started


def refused(body: bytes) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        parse(JobRequest, body)
    return caught.value


def many_names(count: int) -> bytes:
    names = ",".join(f'"n{number}":1' for number in range(count))
    return f'{{{names},"n{count - 1}":2}}'.encode()


def test_a_name_that_stands_twice_is_found_in_linear_time() -> None:
    small, large = many_names(10_000), many_names(80_000)
    assert refused(large).field == "n79999"
    # Quadratic work would take 64 times as long.
    assert cpu_seconds(lambda: refused(large)) < 24 * max(cpu_seconds(lambda: refused(small)), 0.005)


@pytest.fixture(scope="module")
def budget(tmp_path_factory: pytest.TempPathFactory) -> PromptBudget:
    models = tmp_path_factory.mktemp("models")
    tiny_model.install(models)
    return PromptBudget(Settings.model_validate({"model_dir": models, "model": tiny_model.NAME}))


@pytest.mark.parametrize("text", ["9" * 4_000_000, " " * 4_000_000, "😀" * 1_000_000, "word " * 800_000])
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised(budget: PromptBudget, text: str) -> None:
    model, messages = budget.resolve(None), [{"role": "user", "content": text}]
    budget.warm()

    def act() -> None:
        with pytest.raises(PromptTooLongError, match="at least"):
            budget.fit(model, messages, SamplingParams())

    assert cpu_seconds(act) < 1.0  # tokenising takes several seconds


def test_more_messages_than_tokens_fit_are_refused(budget: PromptBudget) -> None:
    with pytest.raises(PromptTooLongError, match="at least"):
        budget.fit(budget.resolve(None), [{"role": "user", "content": "a"}] * 60_000, SamplingParams())


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "x", "13812345678": 1},
        {"prompt": "x", "sampling": {"13812345678": 1}},
        {"prompt": "x", "metadata": {"13812345678": 5}},
        {"prompt": "x", "metadata": {"anna.lee@example.org": "\0"}},
    ],
)
def test_personal_data_in_a_name_is_not_repeated(body: dict[str, object]) -> None:
    error = refused(json.dumps(body).encode())
    for text in (error.message, error.field or ""):
        assert "13812345678" not in text
        assert "anna.lee" not in text
