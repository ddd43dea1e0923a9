"""Grammars of constrained outputs: made from sampling parameters, checked without a model, in bounded time and space.

llguidance's own messages quote the grammar, which is content of a user; only fixed words of ours leave this module.
"""

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import llguidance

from shared.errors import InvalidInputError
from shared.sampling import SamplingParams

Field = Literal["response_format", "regex", "choice"]

# One optional space where JSON allows whitespace: unbounded whitespace is where small models lose themselves.
WHITESPACE = " ?"
OPTIONS_KEY = "x-guidance"  # llguidance's own switches inside a schema, such as ignoring what it cannot enforce
SHOWN_KEYWORDS = frozenset(
    {
        *("not", "if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies"),
        *("contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems"),
        *("propertyNames", "unevaluatedProperties", "contentEncoding", "contentMediaType", "contentSchema"),
        *("$dynamicRef", "$recursiveRef"),
    }
)
# In order: the first pattern found in llguidance's message gives the reason.
REASONS: tuple[tuple[str, str], ...] = (
    (r"look-around|lookaround|Word\w+ in regex", "it uses look-around or a word boundary, which cannot be enforced"),
    (r"backreference", "it uses a backreference, which cannot be enforced"),
    (r"regex parse error|invalid regex", "it is not a valid regular expression"),
    (r"too large|too complex|too many|Current row|limit|fuel|TooComplex", "it is too large or too complex"),
    (r"[Uu]nsatisfiable|NoExtension|infinite|no possible", "nothing satisfies it"),
    (r"Unknown format", "it uses an unknown format"),
    (r"Invalid type", "it uses an unknown type"),
    (r"not present in a registry|[Rr]esource|[Pp]ointer|\$?ref\b", "a $ref in it leads nowhere; only local ones work"),
)


def limits() -> llguidance.LLParserLimits:
    """Return bounds for one grammar: about a second to compile, 20 ms per token, 40 MB."""
    return llguidance.LLParserLimits(
        max_grammar_size=200_000,
        max_lexer_states=20_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        verbose_errors=False,
    )


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar as llguidance reads it, and the parameter it comes from."""

    text: str = field(repr=False)
    field: Field

    def refused(self, reason: str) -> InvalidInputError:
        """Return the error that says why this grammar cannot be used."""
        return refused(self.field, reason)

    def check_matcher(self, matcher: llguidance.LLMatcher) -> None:
        """Refuse a grammar whose fresh `matcher` has failed.

        Raises:
            InvalidInputError: it is invalid, too large, or uses what cannot be enforced; names the field.
        """
        if matcher.is_error():
            raise self.refused(_reason(matcher.get_error()))


def refused(name: Field, reason: str) -> InvalidInputError:
    """Return the error for the constraint `name`."""
    path = f"sampling.{name}"
    return InvalidInputError(f"{path} cannot be used: {reason}; change it and submit again", field=path)


def grammar_of(params: SamplingParams) -> Grammar | None:
    """Return the grammar `params` ask for, None for free text.

    Raises:
        InvalidInputError: the schema holds a switch of the library that could weaken it.
    """
    if params.regex is not None:
        return Grammar(llguidance.LLMatcher.grammar_from_regex(params.regex), "regex")
    if params.choice is not None:
        options = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in params.choice)
        return Grammar(llguidance.LLMatcher.grammar_from_lark(f"start: {options}"), "choice")
    if params.response_format is None or not params.response_format.constrains:
        return None
    wanted = params.response_format.json_schema
    return Grammar(_of_schema({"type": "object"} if wanted is None else wanted.schema_), "response_format")


def _of_schema(schema: dict[str, Any]) -> str:
    if f'"{OPTIONS_KEY}"' in json.dumps(schema):
        raise refused("response_format", f"the schema holds {OPTIONS_KEY}")
    return llguidance.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": WHITESPACE})


def check_constraint(params: SamplingParams) -> None:
    """Refuse a constraint no output could be held to. Takes a second at most.

    Raises:
        InvalidInputError: see `Grammar.check_matcher`; or nothing satisfies it.
    """
    grammar = grammar_of(params)
    if grammar is not None:
        _check(grammar)


@lru_cache(maxsize=64)  # many jobs share a schema; only what passed is kept
def _check(grammar: Grammar) -> None:
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, grammar.text, log_level=0, limits=limits())
    grammar.check_matcher(matcher)
    matcher.compute_bitmask()
    grammar.check_matcher(matcher)


def _reason(message: str) -> str:
    unimplemented = re.search(r"Unimplemented keys: \[([^\]]*)\]", message)
    if unimplemented:
        named = sorted(SHOWN_KEYWORDS & set(re.findall(r'"([^"]*)"', unimplemented[1])))
        return f"it uses {', '.join(named) or 'a keyword'}, which cannot be enforced"
    return next((reason for pattern, reason in REASONS if re.search(pattern, message)), "it is not valid")
