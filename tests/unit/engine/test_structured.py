"""Constrained outputs with random logits: whatever a model wants, what comes out is what was asked for."""

import json
import re
from typing import Any

import jsonschema
import llguidance
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from shared.errors import InvalidInputError
from shared.sampling import SamplingParams
from tests.unit.engine.fake_runner import FakeRunner
from workers.engine import Engine
from workers.engine.sampler import SequenceSampler, sample
from workers.engine.sequence import GenerationOutput, GenerationRequest
from workers.engine.structured import Constraint, GrammarCompiler, Vocabulary, grammar_compiler

END = 0
SPECIALS = ["<end>", "<start>"]
MERGES = [("t", "r"), ("tr", "u"), ("tru", "e"), ('"', ":"), ('"', ","), ("1", "2"), ("a", "b"), ("{", '"')]


def _vocabulary() -> Vocabulary:
    words = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({word: id_ for id_, word in enumerate(words)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    return Vocabulary(tokenizer.to_str(), len(words), [END])


VOCABULARY = _vocabulary()
COMPILER = GrammarCompiler(VOCABULARY)


def schema_params(schema: dict[str, Any], **params: Any) -> SamplingParams:  # noqa: ANN401  # any parameter
    wanted = {"type": "json_schema", "json_schema": {"name": "test", "schema": schema}}
    return SamplingParams.model_validate({"response_format": wanted, **params})


def text_of(ids: list[int]) -> str:
    return b"".join(map(VOCABULARY.bytes_of, ids)).decode("utf-8", errors="replace")


def generated(params: SamplingParams, noise: int = 0, compiler: GrammarCompiler = COMPILER) -> str:
    """Return what random logits write under `params`."""
    constraint, random, ids = compiler.constraint(params), np.random.default_rng(noise), list[int]()
    assert constraint is not None
    sampler = SequenceSampler(params, (5,), VOCABULARY.vocab_size, frozenset({END}), constraint)
    while len(ids) < params.max_tokens and not constraint.complete:
        logits = random.normal(scale=3, size=(1, VOCABULARY.vocab_size)).astype(np.float32)
        sampled = sample(logits, [sampler])
        assert not sampled.faults
        if sampled.token_ids == [END]:
            break
        ids += sampled.token_ids
    assert not set(ids) & set(range(len(SPECIALS)))
    return text_of(ids)


leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 3},
        {"type": "string", "pattern": "^[a-c]{2}$"},
        {"type": "integer"},
        {"type": "integer", "minimum": 3, "maximum": 40},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["a", "ab", 12, None]},
        {"const": 'quo"te'},
    ]
)


def _objects(properties: dict[str, Any], required: set[str]) -> dict[str, Any]:
    named = sorted(required & set(properties))
    return {"type": "object", "properties": properties, "required": named, "additionalProperties": False}


names = st.sampled_from(["a", "ab", "name", "größe", 'q"'])
schemas = st.recursive(
    leaves,
    lambda inner: (
        st.builds(_objects, st.dictionaries(names, inner, max_size=3), st.sets(names))
        | st.builds(lambda items: {"type": "array", "items": items, "maxItems": 2}, inner)
        | st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(schema=schemas, noise=st.integers(0, 2**32), temperature=st.sampled_from([0.0, 1.0]), budget=st.integers(0, 60))
def test_an_output_parses_and_is_valid_however_tight_its_budget(
    schema: dict[str, Any], noise: int, temperature: float, budget: int
) -> None:
    sampling = {"temperature": temperature, "seed": 1}
    try:
        params = schema_params(schema, max_tokens=20 + budget, **sampling)
        COMPILER.constraint(params)
    except InvalidInputError as error:  # too tight for any output
        assert error.field == "sampling.max_tokens"  # noqa: PT017  # the other outcome is as good
        params = schema_params(schema, max_tokens=400, **sampling)
    jsonschema.validate(json.loads(generated(params, noise)), schema)


@settings(max_examples=30, deadline=None)
@given(noise=st.integers(0, 2**32), budget=st.integers(2, 50))
def test_json_object_is_an_object(noise: int, budget: int) -> None:
    params = SamplingParams.model_validate({"response_format": {"type": "json_object"}, "max_tokens": budget})
    assert isinstance(json.loads(generated(params, noise)), dict)


@pytest.mark.parametrize("pattern", ["[0-9]{3}-[a-f]+", "(ab)*c", "^yes|no$", "ü{2}[一-龥]", "a.c", r"\d{1,2}(\.\d)?"])
def test_a_regex_is_matched_as_a_whole(pattern: str) -> None:
    for noise in range(20):
        text = generated(SamplingParams(regex=pattern, max_tokens=20, temperature=1.0, seed=noise), noise)
        assert re.fullmatch(pattern.strip("^$"), text), text


CHOICES = ("a", "ab", 'q"', "back\\slash", "new\nline", "日本", ".*", "<end>", "/x/", " ")


def test_a_choice_is_one_of_the_choices_and_each_can_be_made() -> None:
    made = {generated(SamplingParams(choice=CHOICES, max_tokens=12), noise) for noise in range(400)}
    assert made == set(CHOICES)


def test_the_end_may_come_when_the_output_is_valid_and_not_before() -> None:
    constraint = COMPILER.constraint(SamplingParams(choice=("a", "abb")))
    assert constraint is not None
    assert END not in constraint.allowed()
    constraint.commit(VOCABULARY.tokens.tokenize_str("a")[0])
    assert END in constraint.allowed()
    assert not constraint.complete


REFUSED: list[tuple[SamplingParams, str, str]] = [
    (SamplingParams(regex="(a"), "regex", "not a valid regular"),
    (SamplingParams(regex=r"(?=a)b"), "regex", "look-around"),
    (SamplingParams(regex=r"[^\x00-\U0010ffff]"), "regex", "nothing satisfies"),
    (SamplingParams(choice=("abcdefgh",), max_tokens=3), "max_tokens", "raise sampling.max_tokens"),
    (schema_params({"type": "nope"}), "response_format", "unknown type"),
    (schema_params({"not": {}}), "response_format", "not, which"),
    (schema_params({"$ref": "#"}), "response_format", "nothing satisfies"),
    (schema_params({"$ref": "http://example.org/x"}), "response_format", "leads nowhere"),
    (schema_params({"type": "object", "x-guidance": {"lenient": True}}), "response_format", "x-guidance"),
    (schema_params({"type": "string", "minLength": 3, "maxLength": 2}), "response_format", "nothing satisfies"),
    (
        schema_params({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2100)}}),
        "response_format",
        "too complex",
    ),
]


@pytest.mark.parametrize(("params", "field", "words"), REFUSED)
def test_what_cannot_be_enforced_is_refused_by_name_when_it_is_compiled(
    params: SamplingParams, field: str, words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        COMPILER.constraint(params)
    assert caught.value.field == f"sampling.{field}"


def test_a_grammar_is_compiled_once_and_outputs_share_no_state() -> None:
    compiler = GrammarCompiler(VOCABULARY)
    params = schema_params({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    first = [generated(params, noise, compiler) for noise in range(5)]
    assert [generated(params, noise, compiler) for noise in range(5)] == first
    assert len(compiler._compiled) == 1


MIXED = [
    schema_params({"type": "array", "items": {"type": "integer"}}, max_tokens=20, temperature=1.0, seed=3),
    SamplingParams(max_tokens=15, temperature=1.0, seed=4),
    SamplingParams(regex="[a-z ]{5,9}", max_tokens=12, temperature=0.7, seed=5, top_p=0.9),
    SamplingParams(max_tokens=9),
    SamplingParams(choice=("yes", "no"), max_tokens=8, logprobs=True, top_logprobs=5),
    SamplingParams(max_tokens=9, logit_bias={7: 3.0}, logprobs=True),
]


def served(params: list[SamplingParams], rows: int) -> list[tuple[tuple[int, ...], str, Any]]:
    def constraint_of(one: SamplingParams) -> Constraint | None:
        return COMPILER.constraint(one)

    def shown(output: GenerationOutput) -> tuple[tuple[int, ...], str, Any]:
        return output.token_ids, output.finish_reason, output.logprobs

    with Engine(FakeRunner(rows, vocab_size=VOCABULARY.vocab_size), text_of) as engine:
        requests = [
            GenerationRequest(str(index), [5, index + 1], one, constraint=constraint_of(one))
            for index, one in enumerate(params)
        ]
        return [shown(future.result(30)) for future in [engine.submit(request) for request in requests]]


def test_outputs_are_the_same_alone_and_in_any_batch() -> None:
    alone = served(MIXED, rows=1)
    assert served(MIXED, rows=6) == alone
    assert [reason for _, reason, _ in alone if reason not in {"stop", "length"}] == []
    assert text_of(list(alone[4][0])) in {"yes", "no"}
    assert alone[4][1] == "stop"


def test_a_grammar_that_grows_too_complex_ends_its_own_row_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    tight = llguidance.LLParserLimits(max_lexer_states=300, verbose_errors=False)
    monkeypatch.setattr(grammar_compiler, "limits", lambda: tight)
    hard = SamplingParams(regex="[ab]*a[ab]{150}", max_tokens=200, temperature=1.0, seed=1)
    easy = SamplingParams(max_tokens=200)
    with Engine(FakeRunner(2, max_model_len=256, vocab_size=VOCABULARY.vocab_size), text_of) as engine:
        failing = engine.submit(
            GenerationRequest("hard", [5], hard, constraint=GrammarCompiler(VOCABULARY).constraint(hard))
        )
        fine = engine.submit(GenerationRequest("easy", [6], easy))
        with pytest.raises(InvalidInputError, match="too complex") as caught:
            failing.result(60)
        assert fine.result(60).completion_tokens > 0
    assert not caught.value.retryable


def test_a_constraint_that_was_not_compiled_is_no_free_text() -> None:
    with (
        Engine(FakeRunner(vocab_size=VOCABULARY.vocab_size), text_of) as engine,
        pytest.raises(InvalidInputError, match="not compiled"),
    ):
        engine.submit(GenerationRequest("a", [5], SamplingParams(regex="a")))


@pytest.mark.parametrize("field", ["logit_bias", "stop_token_ids"])
def test_token_ids_beyond_the_vocabulary_are_refused(field: str) -> None:
    value = {5000: 1} if field == "logit_bias" else [5000]
    with Engine(FakeRunner(), text_of) as engine, pytest.raises(InvalidInputError, match="the last one") as caught:
        engine.submit(GenerationRequest("a", [5], SamplingParams.model_validate({field: value})))
    assert caught.value.field == f"sampling.{field}"
