"""Text to token ids and back, with the model's chat template; equal to onnxruntime-genai's, without loading it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from shared.chat_template import ChatTemplate
from shared.errors import InvalidInputError, ModelUnsupportedError

ROLES = frozenset({"system", "user", "assistant", "tool"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_PRIVATE_USE = range(0xF0000, 0x10FFFE)
_NOTHING = r"(?!)"


def check_text(text: str, field: str) -> None:
    """Refuse what no tokenizer takes faithfully.

    Raises:
        InvalidInputError: `text` is empty, or holds U+0000 or half of a surrogate pair.
    """
    if not text:
        raise InvalidInputError(f"{field} is empty; send some text", field=field)
    if "\0" in text:
        raise InvalidInputError(f"{field} holds a NUL character (U+0000); remove it", field=field)
    if _SURROGATE.search(text):
        raise InvalidInputError(f"{field} holds an unpaired surrogate; send valid Unicode", field=field)


def check_messages(messages: Sequence[Mapping[str, str]]) -> None:
    """Refuse conversations no chat template can render.

    Raises:
        InvalidInputError: no messages, an unknown role, or a content `check_text` refuses; names the message.
    """
    if not messages:
        raise InvalidInputError("messages is empty; send at least one message", field="messages")
    for index, message in enumerate(messages):
        if message.get("role") not in ROLES:
            allowed = ", ".join(sorted(ROLES))
            raise InvalidInputError(f"messages[{index}].role must be one of {allowed}", field=f"messages[{index}].role")
        if not isinstance(message.get("content"), str):
            field = f"messages[{index}].content"
            raise InvalidInputError(f"{field} must be a string", field=field)
        check_text(message["content"], f"messages[{index}].content")


def _occurrence_or_cut_off(token: str) -> str:
    """Return a pattern for `token`, whole or cut off by the end of the text (what follows could complete it)."""
    pattern = re.escape(token[-1])
    for char in reversed(token[:-1]):
        pattern = rf"{re.escape(char)}(?:\Z|{pattern})"
    return pattern


def _special_pattern(token: AddedToken) -> str:
    before, after = (r"\s*" if token.lstrip else ""), (r"\s*" if token.rstrip else "")
    return f"{before}({re.escape(token.content)}){after}"


class _Disguise:
    """Hides special-token text inside contents from the template's rendering, and brings it back."""

    def __init__(self, specials: Iterable[str]) -> None:
        tokens = sorted(specials, key=len, reverse=True)
        alternatives = "|".join(map(_occurrence_or_cut_off, tokens)) or _NOTHING
        self._start = re.compile(f"(?={alternatives})(.)", re.DOTALL)
        self._first_chars = sorted({token[0] for token in tokens})

    def pairs(self, texts: Iterable[str]) -> dict[str, str]:
        """Map every first character of a special token to a private-use one that no text holds."""
        taken = set().union(*texts)
        free = (chr(point) for point in _PRIVATE_USE if chr(point) not in taken)
        pairs = dict(zip(self._first_chars, free, strict=False))
        if len(pairs) < len(self._first_chars):
            raise InvalidInputError("messages hold every private-use character; remove some", field="messages")
        return pairs

    def hide(self, text: str, pairs: Mapping[str, str]) -> str:
        return self._start.sub(lambda match: pairs[match[1]], text)


class ChatTokenizer:
    """A model's tokenizer and chat template. Thread safe; about 60 MB for 50k tokens."""

    def __init__(self, serialized: str, template: ChatTemplate) -> None:
        """Build from the text of a `tokenizer.json` and a compiled template."""
        self._trusting = Tokenizer.from_str(serialized)
        # Two objects: `encode_special_tokens` is a property of the tokenizer, and flipping it is not thread safe.
        self._plain = Tokenizer.from_str(serialized)
        self._plain.encode_special_tokens = True
        self._template = template
        added = self._trusting.get_added_tokens_decoder()
        self._special_ids = {token.content: id_ for id_, token in added.items() if token.special}
        specials = sorted((t for t in added.values() if t.special), key=lambda t: len(t.content), reverse=True)
        self._split = re.compile("|".join(map(_special_pattern, specials)) or _NOTHING)
        self._disguise = _Disguise(self._special_ids)

    @classmethod
    def from_directory(cls, path: Path) -> "ChatTokenizer":
        """Load `tokenizer.json`, `tokenizer_config.json` and the chat template from a model directory.

        Raises:
            ModelUnsupportedError: a file is missing, or the model has no chat template.
        """
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (path / name).is_file():
                raise ModelUnsupportedError(f"{path.name} has no {name}; import the model again")
        return cls((path / "tokenizer.json").read_text(encoding="utf-8"), ChatTemplate.from_directory(path))

    @property
    def vocab_size(self) -> int:
        """Number of known token ids, the added ones included."""
        return int(self._trusting.get_vocab_size(with_added_tokens=True))

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest known token: a text of n bytes has at least n divided by this many tokens."""
        # Byte-level vocabularies write each byte as one character; others may not, hence the encoded length.
        return max(len(token.encode()) for token in self._trusting.get_vocab(with_added_tokens=True))

    def encode_chat(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> list[int]:
        """Return the ids of a rendered conversation. Only the template's special tokens become control ids.

        Raises:
            InvalidInputError: see `check_messages`; or the template refuses the messages.
        """
        check_messages(messages)
        pairs = self._disguise.pairs([self._template.source, *(message["content"] for message in messages)])
        hidden = [{"role": m["role"], "content": self._disguise.hide(m["content"], pairs)} for m in messages]
        rendered = self._template.render(hidden, add_generation_prompt=add_generation_prompt)
        return self._encode_rendered(rendered, str.maketrans({private: char for char, private in pairs.items()}))

    def _encode_rendered(self, rendered: str, reveal: dict[int, str]) -> list[int]:
        # Each stretch between control tokens is encoded whole, so merges across a content's border stay what they are.
        ids: list[int] = []
        position = 0
        for match in self._split.finditer(rendered):
            ids += self._plain_ids(rendered[position : match.start()].translate(reveal))
            ids.append(self._special_ids[str(match[match.lastindex or 0])])
            position = match.end()
        return ids + self._plain_ids(rendered[position:].translate(reveal))

    def _plain_ids(self, text: str) -> list[int]:
        return list(self._plain.encode(text, add_special_tokens=False).ids) if text else []

    def count_chat(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Return how many prompt tokens `messages` cost, generation prompt included."""
        return len(self.encode_chat(messages))

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of `text`; special-token text in it stays plain text.

        Raises:
            InvalidInputError: see `check_text`.
        """
        check_text(text, "prompt")
        return self._plain_ids(text)

    def encode_raw(self, text: str) -> list[int]:
        """Return the ids of trusted `text`: special-token text becomes control ids. Never for what users send."""
        return list(self._trusting.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without special tokens; bytes that are not UTF-8 become U+FFFD."""
        return str(self._trusting.decode(list(ids), skip_special_tokens=True))
