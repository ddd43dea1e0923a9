"""Lists of words, written as they read: separated by blanks."""

import re
from dataclasses import dataclass


def one_of(words: str) -> frozenset[str]:
    """Return the blank-separated words as a set."""
    return frozenset(words.split())


@dataclass(frozen=True, slots=True)
class Words:
    """Context words: Latin ones must stand alone, Chinese ones may stand anywhere."""

    pattern: re.Pattern[str]

    @classmethod
    def of(cls, words: str) -> "Words":
        """Compile blank-separated lower-case words; `_` inside one stands for optional blanks."""
        parts = [re.escape(word).replace("_", r"[\s_-]?") for word in words.split()]
        latin = [part for part in parts if part.isascii()]
        other = [part for part in parts if not part.isascii()]
        alone = [rf"(?<![a-z])(?:{'|'.join(latin)})(?![a-z])"] if latin else []
        return cls(re.compile("|".join(alone + other)))

    def search(self, text: str) -> bool:
        """Tell whether one of the words occurs in lower-case `text`."""
        return self.pattern.search(text) is not None
