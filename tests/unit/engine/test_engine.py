import time
from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from shared.errors import (
    CancelledError,
    ConfigurationError,
    DeadlineExceededError,
    GenerationFailedError,
    InvalidInputError,
    PromptTooLongError,
    TokenmillError,
    WorkerStoppingError,
)
from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import EOS, FakeRunner, decode
from workers.engine import Engine, EngineConfig, GenerationRequest

SOON = 10.0


def request(name: str, prompt: list[int], **params: object) -> GenerationRequest:
    return GenerationRequest(name, prompt, SamplingParams.model_validate({"max_tokens": 8, **params}))


def script(runner: FakeRunner, prompt: list[int], text: str, *, end: bool = True) -> None:
    runner.scripts[tuple(prompt)] = [*text.encode(), EOS] if end else list(text.encode()) + [120] * 100


def wait_until_running(engine: Engine, count: int) -> None:
    give_up = time.monotonic() + SOON
    while engine.stats().running < count and time.monotonic() < give_up:
        time.sleep(0.001)
    assert engine.stats().running == count


@pytest.fixture
def engine(runner: FakeRunner) -> Iterator[Engine]:
    with Engine(runner, decode, EngineConfig(max_num_seqs=4, admission_wait_s=0)) as subject:
        yield subject


def test_returns_text_tokens_and_counts(engine: Engine, runner: FakeRunner) -> None:
    script(runner, [7, 8], "Hello")
    output = engine.submit(request("a", [7, 8])).result(SOON)
    assert (output.text, output.finish_reason) == ("Hello", "stop")
    assert output.token_ids == tuple(b"Hello")
    assert (output.prompt_tokens, output.completion_tokens, output.cached_tokens) == (2, 5, 0)
    assert output.first_token_s >= output.queue_s + output.prefill_s


def test_stops_at_max_tokens(engine: Engine, runner: FakeRunner) -> None:
    script(runner, [7], "Hello")
    output = engine.submit(request("a", [7], max_tokens=3)).result(SOON)
    assert (output.text, output.finish_reason) == ("Hel", "length")


@pytest.mark.parametrize("kept_bytes", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("stop", [(), ("never",)])
def test_a_character_cut_by_max_tokens_is_no_text(kept_bytes: int, stop: tuple[str, ...]) -> None:
    runner = FakeRunner(vocab_size=256)
    script(runner, [7], "病历", end=False)
    with Engine(runner, decode, EngineConfig(max_num_seqs=4, admission_wait_s=0)) as engine:
        output = engine.submit(request("a", [7], max_tokens=kept_bytes, stop=stop)).result(SOON)
    assert output.text == "病历"[: kept_bytes // 3]
    assert output.completion_tokens == kept_bytes


@pytest.mark.parametrize(
    "hostile",
    [
        {"min_tokens": 5, "stop_token_ids": (-100_000,)},
        {"temperature": float("nan")},
        {"temperature": 1e-300},
        {"temperature": 1.0, "repetition_penalty": 1e-40},
        {"temperature": 1.0, "top_k": -5, "min_p": float("nan")},
    ],
)
def test_parameters_that_break_sampling_fail_alone(
    engine: Engine, runner: FakeRunner, hostile: dict[str, object]
) -> None:
    """Validation refuses these; the engine, used as a library, must still keep them from the neighbours."""
    script(runner, [7], "Hello")
    params = SamplingParams.model_construct(**{**SamplingParams(max_tokens=8).model_dump(), **hostile})
    bad = engine.submit(GenerationRequest("bad", [9], params))
    good = [engine.submit(request(f"good-{number}", [7])) for number in range(6)]
    assert {future.result(SOON).text for future in good} == {"Hello"}
    error = bad.exception(SOON)
    assert error is None or isinstance(error, GenerationFailedError)


def test_ignore_eos_and_stop_token_ids(engine: Engine, runner: FakeRunner) -> None:
    runner.scripts[(7,)] = [65, EOS, 66, 67, 68]
    output = engine.submit(request("a", [7], ignore_eos=True, stop_token_ids=[67])).result(SOON)
    assert (output.token_ids, output.finish_reason) == ((65, EOS, 66), "stop")


def test_stop_string_across_tokens_is_cut_off(engine: Engine, runner: FakeRunner) -> None:
    script(runner, [7], "one\nEND two", end=False)
    output = engine.submit(request("a", [7], max_tokens=50, stop=["\nEND"])).result(SOON)
    assert (output.text, output.finish_reason) == ("one", "stop")
    assert output.token_ids == tuple(b"one\nEND")


def test_min_tokens_exempts_earlier_stop_strings_and_holds_back_the_end(engine: Engine, runner: FakeRunner) -> None:
    script(runner, [7], "xx.yy.", end=False)
    assert engine.submit(request("a", [7], max_tokens=50, stop=["."], min_tokens=3)).result(SOON).text == "xx.yy"
    script(runner, [8], "ab")
    assert len(engine.submit(request("b", [8], max_tokens=3, min_tokens=3)).result(SOON).token_ids) == 3


def test_more_jobs_than_rows_all_finish_and_no_idle_row_is_computed(engine: Engine, runner: FakeRunner) -> None:
    futures = [engine.submit(request(str(i), [i + 3], max_tokens=1 + i % 7, ignore_eos=True)) for i in range(20)]
    wait(futures, SOON)
    assert [future.result().completion_tokens for future in futures] == [1 + i % 7 for i in range(20)]
    stats = engine.stats()
    assert stats.finished == 20
    assert stats.generated_tokens == sum(1 + i % 7 for i in range(20))
    assert sum(runner.decode_sizes) == stats.decode_rows == stats.generated_tokens - 20
    assert 0 < stats.occupancy <= 1


def test_warm_up_is_not_in_the_stats(engine: Engine, runner: FakeRunner) -> None:
    assert runner.warmed_up == 1
    assert (engine.stats().steps, engine.stats().prompt_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("prompt", "error", "words"),
    [
        ([], InvalidInputError, "no tokens"),
        ([-1], InvalidInputError, "outside 0 to 127"),
        ([128], InvalidInputError, "outside 0 to 127"),
        ([1] * 249, PromptTooLongError, "249.*8.*256"),
    ],
)
def test_prompts_the_model_cannot_take_are_refused(
    engine: Engine, prompt: list[int], error: type[TokenmillError], words: str
) -> None:
    with pytest.raises(error, match=words):
        engine.submit(request("a", prompt))


def test_the_longest_prompt_that_fits_is_served(engine: Engine) -> None:
    assert engine.submit(request("a", [1] * 248, ignore_eos=True)).result(SOON).completion_tokens == 8


def test_an_id_in_use_is_refused_and_free_again_afterwards(engine: Engine, runner: FakeRunner) -> None:
    runner.gate.clear()
    first = engine.submit(request("a", [7]))
    with pytest.raises(InvalidInputError, match="running already"):
        engine.submit(request("a", [8]))
    engine.cancel("a")
    script(runner, [9], "new")
    second = engine.submit(request("a", [9]))
    runner.gate.set()
    assert isinstance(first.exception(SOON), CancelledError)
    assert second.result(SOON).text == "new"


def test_cancelling_frees_the_row_and_leaves_neighbours_alone(engine: Engine, runner: FakeRunner) -> None:
    script(runner, [7], "x" * 100)
    script(runner, [8], "neighbour")
    runner.gate.clear()
    gone, neighbour = engine.submit(request("a", [7], max_tokens=100)), engine.submit(request("b", [8], max_tokens=20))
    assert engine.cancel("a")
    runner.gate.set()
    assert isinstance(gone.exception(SOON), CancelledError)
    assert neighbour.result(SOON).text == "neighbour"
    assert not engine.cancel("a")


def test_abort_ends_with_the_error_given(engine: Engine, runner: FakeRunner) -> None:
    runner.gate.clear()
    future = engine.submit(request("a", [7]))
    assert engine.abort("a", DeadlineExceededError("late"))
    runner.gate.set()
    assert isinstance(future.exception(SOON), DeadlineExceededError)


def test_a_deadline_ends_running_and_waiting_jobs(engine: Engine, runner: FakeRunner) -> None:
    script(runner, [7], "x" * 200)
    runner.gate.clear()
    params = SamplingParams(max_tokens=200)
    late = [
        engine.submit(GenerationRequest(str(index), [7], params, deadline=time.monotonic() + 0.05))
        for index in range(6)
    ]
    time.sleep(0.06)
    runner.gate.set()
    assert all(isinstance(future.exception(SOON), DeadlineExceededError) for future in late)


def test_one_bad_sequence_fails_alone(engine: Engine, runner: FakeRunner) -> None:
    for prompt in (7, 8, 9):
        script(runner, [prompt], "neighbour")
    script(runner, [10], "ok\x7f!")
    runner.poison = {0x7F}
    runner.gate.clear()
    futures = [engine.submit(request(str(prompt), [prompt], max_tokens=20)) for prompt in (7, 10, 8, 9)]
    runner.gate.set()
    error = futures[1].exception(SOON)
    assert isinstance(error, GenerationFailedError)
    assert error.retryable
    assert [futures[index].result(SOON).text for index in (0, 2, 3)] == ["neighbour"] * 3
    assert engine.stats().failed == 1


def test_a_prompt_that_fails_in_prefill_fails_alone_and_runs_no_further_chunk(
    engine: Engine, runner: FakeRunner
) -> None:
    runner.poison = {99}
    script(runner, [7], "fine")
    bad, good = engine.submit(request("a", [99] * 240)), engine.submit(request("b", [7]))
    assert isinstance(bad.exception(SOON), GenerationFailedError)
    assert good.result(SOON).text == "fine"
    # Together, then each by itself: never a third time.
    assert sorted(runner.prefill_sizes) == [1, 1, 240, 240]


def test_logits_that_are_not_finite_fail_their_row_only(engine: Engine, runner: FakeRunner) -> None:
    runner.not_a_number = {99}
    script(runner, [7], "fine")
    bad, good = engine.submit(request("a", [99])), engine.submit(request("b", [7]))
    with pytest.raises(GenerationFailedError, match="not finite"):
        bad.result(SOON)
    assert good.result(SOON).text == "fine"


def test_a_detokenizer_that_raises_fails_its_sequence_only(runner: FakeRunner) -> None:
    def picky(ids: list[int]) -> str:
        if 90 in ids:
            raise ValueError("no such token")
        return decode(ids)

    script(runner, [7], "aZ")
    script(runner, [8], "fine")
    with Engine(runner, picky) as engine:
        bad, good = engine.submit(request("a", [7])), engine.submit(request("b", [8]))
        assert isinstance(bad.exception(SOON), GenerationFailedError)
        assert good.result(SOON).text == "fine"


def test_the_engine_survives_a_fault_of_its_own(engine: Engine, runner: FakeRunner) -> None:
    def broken_move(*_: int) -> None:
        raise RuntimeError("no move")

    script(runner, [7], "x")
    script(runner, [8], "xxxxxx")
    runner.move = broken_move  # type: ignore[assignment,method-assign]
    runner.gate.clear()
    short, long = engine.submit(request("a", [7])), engine.submit(request("b", [8]))
    runner.gate.set()
    assert short.result(SOON).text == "x"
    assert isinstance(long.exception(SOON), GenerationFailedError)
    assert engine.submit(request("c", [8])).result(SOON).text == "xxxxxx"


def test_drain_finishes_running_jobs_and_hands_back_waiting_ones(engine: Engine, runner: FakeRunner) -> None:
    script(runner, [7], "x" * 20)
    runner.gate.clear()
    futures = [engine.submit(request(str(index), [7], max_tokens=20)) for index in range(4)]
    wait_until_running(engine, 4)
    waiting = engine.submit(request("waiting", [7]))
    runner.gate.set()
    assert engine.drain(SOON)
    assert [future.result(SOON).text for future in futures] == ["x" * 20] * 4
    error = waiting.exception(SOON)
    assert isinstance(error, WorkerStoppingError)
    assert error.retryable
    with pytest.raises(WorkerStoppingError):
        engine.submit(request("late", [7]))


def test_drain_hands_back_what_does_not_finish_in_time(engine: Engine, runner: FakeRunner) -> None:
    runner.gate.clear()
    future = engine.submit(request("a", [7]))
    wait_until_running(engine, 1)
    assert not engine.drain(0.01)
    assert isinstance(future.exception(SOON), WorkerStoppingError)
    runner.gate.set()


def test_close_ends_thread_and_runner_and_may_be_repeated(runner: FakeRunner) -> None:
    engine = Engine(runner, decode)
    engine.start()
    engine.close()
    engine.close()
    assert runner.closed >= 1
    with pytest.raises(WorkerStoppingError):
        engine.submit(request("a", [7]))


def test_a_model_that_does_not_warm_up_leaves_nothing_behind(runner: FakeRunner) -> None:
    def broken() -> None:
        raise MemoryError("no room")

    runner.warm_up = broken  # type: ignore[method-assign]
    with pytest.raises(MemoryError), Engine(runner, decode):
        pass
    assert runner.closed == 1


def test_steps_without_a_thread(runner: FakeRunner) -> None:
    script(runner, [7], "ab")
    engine = Engine(runner, decode, EngineConfig(max_num_seqs=2, admission_wait_s=0))
    future = engine.submit(request("a", [7]))
    for _ in range(3):
        engine.step()
    assert future.result(0).text == "ab"
    assert engine.stats().running == 0
    engine.close()


def test_more_rows_than_the_runner_has_are_refused(runner: FakeRunner) -> None:
    with pytest.raises(ConfigurationError, match="max_num_seqs"):
        Engine(runner, decode, EngineConfig(max_num_seqs=5))
