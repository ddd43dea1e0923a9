"""A model's tokens as bytes: what grammars are matched against and token texts are made of."""

import threading
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

import llguidance

from shared.errors import ModelUnsupportedError

JSON_CLOSERS = '}],:0"tfn- .'
PRINTABLE = "".join(map(chr, range(0x21, 0x7F))) + " \n\t"


class Vocabulary:
    """The tokens of one model. Thread safe; built at first use, in about a second, and then 40 MB large."""

    def __init__(self, serialized: str, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        """Take the text of a `tokenizer.json`, the width of the logits and the tokens that end an output."""
        self.vocab_size = vocab_size
        self._serialized, self._eos_token_ids = serialized, sorted(eos_token_ids)
        self._building = threading.Lock()
        self._tokens: llguidance.LLTokenizer | None = None

    @property
    def tokens(self) -> llguidance.LLTokenizer:
        """The tokenizer as llguidance holds it.

        Raises:
            ModelUnsupportedError: grammars cannot be matched against this tokenizer.
        """
        with self._building:
            if self._tokens is None:
                self._tokens = self._built()
            return self._tokens

    def _built(self) -> llguidance.LLTokenizer:
        try:
            return llguidance.LLTokenizer(self._serialized, n_vocab=self.vocab_size, eos_token=self._eos_token_ids)
        except Exception as error:
            raise ModelUnsupportedError(
                "this model's tokenizer cannot be used with response_format, regex, choice or logprobs"
            ) from error

    @classmethod
    def from_directory(cls, path: Path, vocab_size: int, eos_token_ids: Collection[int]) -> "Vocabulary":
        """Read the `tokenizer.json` of a model directory."""
        return cls((path / "tokenizer.json").read_text(encoding="utf-8"), vocab_size, eos_token_ids)

    def bytes_of(self, token_id: int) -> bytes:
        """Return what a token stands for; it may end inside a character."""
        return self.tokens.decode_bytes([token_id])

    @cached_property
    def quote(self) -> int | None:
        """The token of a lone double quote, if there is one."""
        return self._single(b'"')

    @cached_property
    def letter(self) -> int | None:
        """The token of a lone letter that begins no JSON value."""
        return self._single(b"x")

    @cached_property
    def closers(self) -> list[int]:
        """Tokens of one byte, first those that end JSON values, then those that fill."""
        order = [*JSON_CLOSERS.encode(), *PRINTABLE.encode(), *range(0x80, 0x100)]
        singles = (self._single(bytes([byte])) for byte in order)
        return list(dict.fromkeys(token for token in singles if token is not None))

    def _single(self, text: bytes) -> int | None:
        tokens = self.tokens.greedy_tokenize(text.decode()) if text.isascii() else self.tokens.tokenize_bytes(text)
        return tokens[0] if len(tokens) == 1 and self.bytes_of(tokens[0]) == text else None
