"""Outputs held to a grammar, token by token."""

from workers.engine.structured.constraint import Constraint
from workers.engine.structured.grammar_compiler import GrammarCompiler
from workers.engine.structured.vocabulary import Vocabulary

__all__ = ["Constraint", "GrammarCompiler", "Vocabulary"]
