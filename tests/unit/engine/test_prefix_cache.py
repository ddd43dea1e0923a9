import numpy as np
import pytest

from workers.engine import prefix_keys as names
from workers.engine.model_runner import KvBlock
from workers.engine.prefix_cache import PrefixCache
from workers.engine.prefix_keys import PrefixKey, prefix_keys

BLOCK_BYTES = 80


def block() -> KvBlock:
    return KvBlock(10, (np.zeros(10),))


def keep(cache: PrefixCache, chain: tuple[PrefixKey, ...]) -> None:
    for length in range(1, len(chain) + 1):
        cache.put(chain[:length], block())


def test_one_key_per_whole_chunk() -> None:
    assert [len(prefix_keys([5] * length, 4)) for length in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_a_key_stands_for_everything_before_it_and_nothing_behind() -> None:
    keys, other = prefix_keys([1, 2, 3, 4, 5, 6], 2), prefix_keys([9, 2, 3, 4, 5, 6], 2)
    assert keys[:2] == prefix_keys([1, 2, 3, 4, 7, 8], 2)[:2]
    assert not set(keys) & set(other)
    assert prefix_keys([1, 1, 1, 1], 2)[0] != prefix_keys([1, 1, 1, 1], 2)[1]


def test_prompts_of_different_salt_share_nothing() -> None:
    assert prefix_keys([1, 2], 2, "key-a") == prefix_keys([1, 2], 2, "key-a")
    assert not set(prefix_keys([1, 2], 2, "key-a")) & set(prefix_keys([1, 2], 2, "key-b"))


def test_equal_digests_of_different_tokens_are_different_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_digest", lambda *_: b"always the same")
    (mine,), (other,) = prefix_keys([1, 2], 2), prefix_keys([3, 4], 2)
    cache = PrefixCache(1000)
    cache.put((mine,), block())
    assert cache.get((other,)) is None


def test_only_what_two_sequences_ask_for_is_wanted() -> None:
    cache = PrefixCache(1000)
    shared, own, other = prefix_keys([1, 1], 2) + prefix_keys([2, 2], 2) + prefix_keys([3, 3], 2)
    cache.note([shared, own])
    assert not cache.wants(shared)
    cache.note([shared, other])
    assert [cache.wants(key) for key in (shared, own, other)] == [True, False, False]
    cache.put((shared,), block())
    assert not cache.wants(shared)


def test_the_least_recently_used_prefix_goes_from_its_end() -> None:
    cache = PrefixCache(5 * BLOCK_BYTES)
    old, fresh = prefix_keys([1] * 6, 2), prefix_keys([2] * 6, 2)
    keep(cache, old)
    keep(cache, fresh)
    assert [key in cache for key in (*old, *fresh)] == [True, True, False, True, True, True]
    assert (cache.bytes, len(cache), cache.evictions) == (5 * BLOCK_BYTES, 5, 1)


def test_using_a_prefix_keeps_it() -> None:
    cache = PrefixCache(2 * BLOCK_BYTES)
    first, second, third = prefix_keys([1], 1), prefix_keys([2], 1), prefix_keys([3], 1)
    keep(cache, first)
    keep(cache, second)
    assert cache.get(first) is not None
    keep(cache, third)
    assert [chain[0] in cache for chain in (first, second, third)] == [True, False, True]


def test_a_prefix_longer_than_the_budget_keeps_its_start() -> None:
    cache = PrefixCache(2 * BLOCK_BYTES)
    chain = prefix_keys([1] * 8, 2)
    keep(cache, chain)
    assert [key in cache for key in chain] == [True, True, False, False]


def test_sightings_are_bounded_and_none_are_kept_without_a_budget() -> None:
    cache, off = PrefixCache(1000, max_sightings=3), PrefixCache(0)
    keys = prefix_keys(range(10), 1)
    cache.note(keys)
    off.note(keys)
    off.note(keys)
    assert len(cache._sightings) == 3
    assert not off.wants(keys[0])
    assert not off._sightings


def test_nothing_is_left_after_clearing() -> None:
    cache = PrefixCache(1000)
    chain = prefix_keys([1, 2], 1)
    cache.note(chain)
    keep(cache, chain)
    cache.clear()
    assert (len(cache), cache.bytes, len(cache._sightings)) == (0, 0, 0)
