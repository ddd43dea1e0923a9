"""Placeholders such as `<PHONE_1>`: their grammar, and which value stands behind which one within a job."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from shared.privacy.normalise import normalised

HASH_DIGITS = 12
PLACEHOLDER = re.compile(r"<\s{0,4}([A-Za-z]{2,24}(?:_[A-Za-z]{1,24}){0,5})\s?_\s?([0-9]{1,6})\s{0,4}>", re.ASCII)
"""A placeholder as a model may spell it: any case, blanks inside. Group 1 is the entity, group 2 the number."""


def canonical(match: re.Match[str]) -> str:
    """Return the one spelling that mappings use for a matched placeholder."""
    return f"<{match[1].upper()}_{int(match[2])}>"


_STANDING = re.compile(
    rf"{PLACEHOLDER.pattern}|<[A-Z][A-Z0-9_]{{1,39}}(?::[0-9a-f]{{{HASH_DIGITS}}})?>|\*{{4,}}", re.ASCII
)


def placeholder_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where placeholders, digests and masks already stand in `text`."""
    return (match.span() for match in _STANDING.finditer(text))


BARE = "\0"
"""Marks an original that was a bare JSON number, whose placeholder had to be put in quotation marks."""


def occurrence_key(placeholder: str, occurrence: int) -> str:
    """Name the spelling of the n-th occurrence where it differs from the first one's."""
    return f"{placeholder}#{occurrence}"


class Ledger:
    """Gives out placeholders for one job: the same normalised value always gets the same one.

    A placeholder that the input already contains is never given out, which is how literal ones are kept apart:
    they stay as they are, and restoring cannot mistake them for a value.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        """Continue from the `mapping` of an earlier scrub of the same job."""
        self.mapping = dict(mapping or {})
        self._taken = set(self.mapping)
        self._numbers: Counter[str] = Counter()
        self._occurrences: Counter[str] = Counter()
        self._by_value: dict[tuple[str, str], str] = {}
        for placeholder, original in (mapping or {}).items():
            self._adopt(placeholder, original)

    def reserve(self, text: str) -> None:
        """Keep every placeholder that stands in `text` from being given out."""
        self._taken.update(canonical(match) for match in PLACEHOLDER.finditer(text))

    def placeholder(self, entity: str, original: str) -> str:
        """Return the placeholder for a value and remember how it is spelled here, `BARE` in front or not."""
        key = (entity, normalised(entity, original.removeprefix(BARE)))
        placeholder = self._by_value.get(key) or self._next(entity)
        self._by_value[key] = placeholder
        self._occurrences[placeholder] += 1
        if self.mapping.setdefault(placeholder, original) != original:
            self.mapping[occurrence_key(placeholder, self._occurrences[placeholder])] = original
        return placeholder

    def _adopt(self, placeholder: str, original: str) -> None:
        if match := PLACEHOLDER.fullmatch(placeholder):
            entity = match[1].upper()
            self._by_value[entity, normalised(entity, original.removeprefix(BARE))] = placeholder
        else:
            name, _, occurrence = placeholder.rpartition("#")
            self._occurrences[name] = max(self._occurrences[name], int(occurrence))

    def _next(self, entity: str) -> str:
        while True:
            self._numbers[entity] += 1
            placeholder = f"<{entity}_{self._numbers[entity]}>"
            if placeholder not in self._taken:
                self._taken.add(placeholder)
                return placeholder
