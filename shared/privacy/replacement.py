"""What takes the place of a value, by the action its type has."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shared.crypto import KeyRing
from shared.errors import PrivacyBlockedError
from shared.privacy.json_text import Strings
from shared.privacy.normalise import normalised
from shared.privacy.placeholders import BARE, HASH_DIGITS, Ledger
from shared.privacy.policy import Action, Policy
from shared.privacy.span import Span

Digest = Callable[[str], str]
"""Returns a keyed digest in hex digits: equal for equal values of one API key, of no use to anybody else."""


def digest_for(keyring: KeyRing, api_key_id: str) -> Digest:
    """Return what values are hashed with for one API key: nobody without the encryption key can try values."""
    return lambda value: keyring.mac(f"privacy:{api_key_id}", value.encode(errors="replace"))[1].hex()


_VISIBLE, _SHORTEST_SHOWN = 4, 8


def masked(value: str) -> str:
    """Return `value` with all but its last four characters hidden; of short ones nothing is shown."""
    shown = _VISIBLE if len(value) >= _SHORTEST_SHOWN else 0
    return "*" * max(len(value) - shown, _VISIBLE) + value[len(value) - shown :]


@dataclass(frozen=True, slots=True)
class Replacer:
    """Replaces the values of one job."""

    policy: Policy
    ledger: Ledger
    digest: Digest | None = None

    def apply(self, text: str, spans: Iterable[Span], strings: Strings | None = None) -> str:
        """Return `text` with every span replaced; `spans` are disjoint and ascending.

        In JSON, whose `strings` are given, numbers become strings.
        """
        pieces, position = [], 0
        for span in spans:
            bare = strings.bare(span.start, span.end) if strings else None
            start, end = bare or (span.start, span.end)
            value = self._value(span.entity, f"{BARE if bare else ''}{text[start:end]}")
            pieces += [text[position:start], f'"{value}"' if bare else value]
            position = end
        return "".join([*pieces, text[position:]])

    def _value(self, entity: str, marked: str) -> str:
        action, value = self.policy.action(entity), marked.removeprefix(BARE)
        if action is Action.MASK:
            return masked(value)
        if action is Action.REDACT:
            return f"<{entity}>"
        if action is Action.HASH and self.digest is not None:
            return f"<{entity}:{self.digest(f'{entity}:{normalised(entity, value)}')[:HASH_DIGITS]}>"
        return self.ledger.placeholder(entity, marked)


def check_blocked(policy: Policy, spans: Sequence[Span]) -> None:
    """Refuse data of a type that `policy` blocks.

    Raises:
        PrivacyBlockedError: there is some; names the types and how often each occurs.
    """
    blocked = Counter(span.entity for span in spans if policy.action(span.entity) is Action.BLOCK)
    if blocked:
        found = ", ".join(f"{count} {entity}" for entity, count in sorted(blocked.items()))
        raise PrivacyBlockedError(
            f"policy {policy.label} blocks what the text holds ({found}): remove it, or ask for another policy"
        )
