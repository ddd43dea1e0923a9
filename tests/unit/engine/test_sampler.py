import numpy as np
import pytest

from shared.sampling import SamplingParams
from workers.engine.sampler import Row, SequenceSampler, sample

VOCAB = 1000
END = frozenset({2})


def sampler(prompt: tuple[int, ...] = (5,), **params: object) -> SequenceSampler:
    return SequenceSampler(SamplingParams.model_validate(params), prompt, VOCAB, END)


def logits(**values: float) -> Row:
    row = np.full(VOCAB, -5, np.float32)
    for name, value in values.items():
        row[int(name[1:])] = value
    return row


def drawn(row: Row, count: int = 300, **params: object) -> set[int]:
    subject = SequenceSampler(
        SamplingParams.model_validate({"temperature": 1.0, "seed": 1, **params}), (5,), VOCAB, END
    )
    return {subject.choose(row) for _ in range(count)}


def test_greedy_takes_the_most_likely_token_and_the_first_of_equals() -> None:
    rows = np.stack([logits(t7=3), logits(t9=3, t8=3)])
    assert sample(rows, [sampler(), sampler()]).token_ids == [7, 8]


def test_a_seed_repeats_and_seeds_differ() -> None:
    row = np.random.default_rng(0).normal(size=VOCAB).astype(np.float32)

    def run(seed: int) -> list[int]:
        subject = sampler(temperature=1.0, seed=seed)
        return [subject.choose(row) for _ in range(20)]

    assert run(3) == run(3) != run(4)


def test_a_row_draws_the_same_whatever_its_neighbours_are() -> None:
    rows = np.random.default_rng(0).normal(size=(4, VOCAB)).astype(np.float32)
    alone, mixed = sampler(temperature=0.8, seed=5, top_p=0.9), sampler(temperature=0.8, seed=5, top_p=0.9)
    others = [sampler(temperature=2.0, seed=seed) for seed in range(3)]
    for _ in range(10):
        expected = sample(rows[2:3], [alone]).token_ids[0]
        assert sample(rows, [others[0], others[1], mixed, others[2]]).token_ids[2] == expected


def test_top_k_keeps_the_k_most_likely() -> None:
    assert drawn(logits(t3=2, t4=2.1, t5=2.2, t6=1.9), top_k=3) == {3, 4, 5}


def test_top_k_of_more_than_the_vocabulary_keeps_all() -> None:
    assert len(drawn(np.zeros(VOCAB, np.float32), top_k=VOCAB + 1)) > 100


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    row = np.full(VOCAB, -50, np.float32)
    row[[3, 4, 5]] = np.log([0.5, 0.3, 0.2])
    assert drawn(row, top_p=0.5) == {3}
    assert drawn(row, top_p=0.6) == {3, 4}
    assert drawn(row, top_p=0.81) == {3, 4, 5}


def test_top_p_looks_beyond_the_first_candidates_on_flat_logits() -> None:
    assert max(drawn(np.zeros(VOCAB, np.float32), count=3000, top_p=0.9)) > 800
    assert max(drawn(np.zeros(VOCAB, np.float32), count=3000, top_p=0.5)) < 501


def test_min_p_drops_what_is_unlikely_beside_the_best() -> None:
    row = np.full(VOCAB, -50, np.float32)
    row[[3, 4, 5]] = np.log([0.6, 0.3, 0.1])
    assert drawn(row, min_p=0.4) == {3, 4}


def test_frequencies_follow_the_probabilities() -> None:
    row = np.full(VOCAB, -50, np.float32)
    row[[3, 4]] = np.log([0.75, 0.25])
    subject = sampler(temperature=1.0, seed=2)
    share = sum(subject.choose(row) == 3 for _ in range(4000)) / 4000
    assert share == pytest.approx(0.75, abs=0.03)


def test_temperature_sharpens() -> None:
    row = np.full(VOCAB, -50, np.float32)
    row[[3, 4]] = np.log([0.75, 0.25])
    subject = sampler(temperature=0.25, seed=2)
    share = sum(subject.choose(row) == 3 for _ in range(2000)) / 2000
    assert share == pytest.approx(81 / 82, abs=0.015)


def test_repetition_penalty_looks_at_prompt_and_output_and_at_the_sign() -> None:
    subject = sampler(prompt=(5,), repetition_penalty=2.0)
    assert sample(logits(t5=4, t6=3)[None], [subject]).token_ids == [6]
    assert sample(logits(t5=4, t6=3, t7=2.5)[None], [subject]).token_ids == [7]
    negative = np.full(VOCAB, -1.5, np.float32)
    negative[5] = -1
    assert sample(negative[None], [sampler(prompt=(5,), repetition_penalty=2.0)]).token_ids == [0]


def test_presence_and_frequency_penalties_look_at_output_only() -> None:
    row = logits(t5=4, t6=3.5)[None]
    present = sampler(prompt=(5,), presence_penalty=1.0)
    assert [sample(row, [present]).token_ids[0] for _ in range(3)] == [5, 6, 5]
    frequent = sampler(prompt=(5,), frequency_penalty=0.3)
    assert [sample(row, [frequent]).token_ids[0] for _ in range(5)] == [5, 5, 6, 5, 6]


def test_the_end_is_held_back_until_min_tokens() -> None:
    row = logits(t2=9, t7=3)[None]
    subject = sampler(min_tokens=2)
    assert [sample(row, [subject]).token_ids[0] for _ in range(3)] == [7, 7, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_told(value: float) -> None:
    rows = np.stack([logits(t7=3), logits(t8=value), logits(t9=3)])
    result = sample(rows, [sampler(), sampler(temperature=1.0, seed=1), sampler()])
    assert result.finite == [True, False, True]
    assert (result.token_ids[0], result.token_ids[2]) == (7, 9)


def test_logits_are_left_as_they_are() -> None:
    rows = np.random.default_rng(0).normal(size=(2, VOCAB)).astype(np.float32)
    before = rows.copy()
    sample(rows, [sampler(temperature=1, seed=1, repetition_penalty=1.5), sampler(min_tokens=4)])
    assert (rows == before).all()


def test_an_extreme_seed_is_taken() -> None:
    assert sampler(temperature=1.0, seed=2**63 - 1).choose(logits(t7=90)) == 7


def test_a_bias_moves_the_choice_of_its_row_only() -> None:
    rows = np.stack([logits(t7=3, t8=2)] * 2)
    assert sample(rows, [sampler(logit_bias={8: 1.5}), sampler()]).token_ids == [8, 7]
    assert sample(rows[:1], [sampler(logit_bias={7: -100})]).token_ids == [8]


def test_a_bias_moves_what_is_drawn() -> None:
    row = np.full(VOCAB, -50, np.float32)
    row[[3, 4]] = 0
    assert drawn(row, logit_bias={4: -100}) == {3}
