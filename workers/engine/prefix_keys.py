"""Names of prompt prefixes: one key per whole prefill chunk, chained so that it stands for all tokens before it too."""

import secrets
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

DIGEST_BYTES = 32
# Digests of guessed prompts cannot be computed elsewhere and looked up in a dump of this process.
_PROCESS_KEY = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class PrefixKey:
    """A chunk after a certain prefix. Equal only if the chunk's tokens are, whatever the digests say."""

    digest: bytes
    tokens: bytes


def _digest(*parts: bytes) -> bytes:
    state = blake2b(digest_size=DIGEST_BYTES, key=_PROCESS_KEY)
    for part in parts:
        state.update(part)
    return state.digest()


def prefix_keys(prompt_ids: Sequence[int], chunk_size: int, salt: str = "") -> tuple[PrefixKey, ...]:
    """Return the keys of the whole chunks of `prompt_ids`; prompts of different `salt` have none in common."""
    before = _digest(salt.encode("utf-8", errors="surrogatepass"))
    keys = []
    for start, stop in pairwise(range(0, len(prompt_ids) + 1, chunk_size)):
        tokens = array("q", prompt_ids[start:stop]).tobytes()
        before = _digest(before, tokens)
        keys.append(PrefixKey(before, tokens))
    return tuple(keys)
