"""Sealed content stays bound to its row and key, and no key ever shows."""

import base64
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.crypto import KeyRing, Sealed, digests_equal, generate_key
from shared.errors import ConfigurationError, DecryptionError

OLD = "old:" + base64.b64encode(b"o" * 32).decode()
NEW = "new:" + base64.b64encode(b"n" * 32).decode()


@given(st.binary(max_size=4096), st.text(st.characters(codec="utf-8"), max_size=40))
def test_opens_what_it_sealed(plaintext: bytes, context: str) -> None:
    ring = KeyRing.from_setting(NEW)
    sealed = ring.seal(plaintext, context=context)
    assert sealed.key_id == "new"
    assert ring.open(sealed, context=context) == plaintext


def test_the_same_plaintext_never_seals_alike() -> None:
    ring = KeyRing.from_setting(NEW)
    blobs = {ring.seal(b"same", context="job:1:prompt").blob for _ in range(64)}
    assert len(blobs) == 64
    assert len({blob[:12] for blob in blobs}) == 64


def test_a_blob_cannot_move_to_another_row() -> None:
    ring = KeyRing.from_setting(NEW)
    sealed = ring.seal(b"prompt", context="job:1:prompt")
    with pytest.raises(DecryptionError):
        ring.open(sealed, context="job:2:prompt")


@pytest.mark.parametrize("position", [0, 11, 12, -1])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    ring = KeyRing.from_setting(NEW)
    sealed = ring.seal(b"prompt", context="c")
    damaged = bytearray(sealed.blob)
    damaged[position] ^= 1
    with pytest.raises(DecryptionError):
        ring.open(Sealed(sealed.key_id, bytes(damaged)), context="c")


@pytest.mark.parametrize("length", [0, 11, 12, 27])
def test_a_cut_blob_is_noticed(length: int) -> None:
    ring = KeyRing.from_setting(NEW)
    sealed = ring.seal(b"", context="c")
    with pytest.raises(DecryptionError):
        ring.open(Sealed(sealed.key_id, sealed.blob[:length]), context="c")


def test_rotation_reads_old_content_and_writes_with_the_new_key() -> None:
    before = KeyRing.from_setting(OLD).seal(b"kept", context="c")
    digest = KeyRing.from_setting(OLD).mac("api-key", b"tm_live")
    rotated = KeyRing.from_setting(f"{NEW}, {OLD}")
    assert rotated.key_ids == ("new", "old")
    assert rotated.open(before, context="c") == b"kept"
    assert rotated.seal(b"x", context="c").key_id == "new"
    assert rotated.mac("api-key", b"tm_live", key_id="old") == digest


def test_a_retired_key_is_named_by_the_setting() -> None:
    before = KeyRing.from_setting(OLD).seal(b"kept", context="c")
    ring = KeyRing.from_setting(NEW)
    with pytest.raises(DecryptionError, match="TOKENMILL_ENCRYPTION_KEY"):
        ring.open(before, context="c")
    with pytest.raises(DecryptionError, match="TOKENMILL_ENCRYPTION_KEY"):
        ring.mac("api-key", b"x", key_id="old")


def test_digests_depend_on_key_purpose_and_data() -> None:
    ring = KeyRing.from_setting(f"{NEW},{OLD}")
    digests = {
        ring.mac("api-key", b"x")[1],
        ring.mac("body", b"x")[1],
        ring.mac("api-key", b"y")[1],
        ring.mac("api-key", b"x", key_id="old")[1],
    }
    assert len(digests) == 4
    assert {len(digest) for digest in digests} == {32}
    assert digests_equal(ring.mac("body", b"x")[1], ring.mac("body", b"x")[1])
    assert not digests_equal(*[ring.mac("body", data)[1] for data in (b"x", b"y")])


@pytest.mark.parametrize(
    "setting",
    [None, "", " , ", "nokeyid", ":" + "A" * 44, "a b:" + "A" * 44, "k:!!!", "k:c2hvcnQ=", f"{NEW},{NEW}"],
)
def test_a_useless_setting_names_itself_and_quotes_nothing(setting: str | None) -> None:
    with pytest.raises(ConfigurationError, match="TOKENMILL_ENCRYPTION_KEY") as caught:
        KeyRing.from_setting(setting)
    assert caught.value.field == "TOKENMILL_ENCRYPTION_KEY"
    assert "A" * 44 not in str(caught.value)
    assert "c2hvcnQ" not in str(caught.value)


def test_generated_keys_work_and_differ() -> None:
    first, second = generate_key(), generate_key()
    assert first.split(":")[1] != second.split(":")[1]
    assert KeyRing.from_setting(f"{first},{second}").active_key_id == first.split(":")[0]


def test_keys_never_show() -> None:
    ring = KeyRing.from_setting(NEW)
    assert repr(ring) == str(ring) == "KeyRing(new)"
    with pytest.raises(TypeError):
        pickle.dumps(ring)
