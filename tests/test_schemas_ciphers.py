"""Laws of the ciphers: what is sealed opens with its own key at its own place, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ciphers import derived_key, key_check, opened_content, random_key, sealed_content, unwrap, wrap
from schemas.errors import IntegrityError

KEK = bytes(range(32))
OTHER = bytes(range(1, 33))
contexts = st.dictionaries(st.text("abc", min_size=1, max_size=4), st.text("xyz", max_size=4), max_size=3)


@given(context=contexts)
def test_wrapped_key_opens_under_its_kek_and_context(context: dict[str, str]) -> None:
    """Wrapping and unwrapping gives the key back, and no two wrappings of it are equal."""
    key = random_key()

    one, two = wrap(key, KEK, context), wrap(key, KEK, context)

    assert unwrap(one, KEK, context, where="shard") == unwrap(two, KEK, context, where="shard") == key
    assert one != two


@given(context=contexts, other=contexts)
def test_wrapped_key_opens_in_no_other_context(context: dict[str, str], other: dict[str, str]) -> None:
    """The context is part of the wrapping: the key of one shard cannot be passed off as that of another."""
    wrapped = wrap(random_key(), KEK, context)

    if other != context:
        with pytest.raises(IntegrityError, match="shard: the wrapped key does not open"):
            unwrap(wrapped, KEK, other, where="shard")


@pytest.mark.parametrize("damage", ["", "!", "AAAA", "A" * 4096])
def test_what_is_no_wrapping_is_refused(damage: str) -> None:
    """Text that is no base64, or too short, or of another key, gives one line and never a key."""
    with pytest.raises(IntegrityError, match="the wrapped key does not open"):
        unwrap(damage, KEK, {}, where="shard")


def test_wrapped_key_opens_under_no_other_kek() -> None:
    """Another KEK is refused."""
    wrapped = wrap(random_key(), KEK, {})

    with pytest.raises(IntegrityError, match="does not open"):
        unwrap(wrapped, OTHER, {}, where="shard")


def test_wrapped_key_of_another_length_is_refused() -> None:
    """Only keys of 32 bytes are keys, so no weaker one is taken by mistake."""
    wrapped = wrap(bytes(16), KEK, {})

    with pytest.raises(IntegrityError, match="has 16 bytes, not 32"):
        unwrap(wrapped, KEK, {}, where="shard")


@given(content=st.binary(max_size=200), place=st.binary(max_size=20))
def test_equal_content_gives_equal_bytes(content: bytes, place: bytes) -> None:
    """Sealing is a function of content, key and place, so that a partial scored twice is one file."""
    sealed = sealed_content(content, KEK, bound_to=place)

    assert sealed == sealed_content(content, KEK, bound_to=place)
    assert opened_content(sealed, KEK, bound_to=place, where="partial") == content


@given(content=st.binary(max_size=60), data=st.data())
def test_any_changed_byte_is_found(content: bytes, data: st.DataObject) -> None:
    """One flipped bit anywhere, another key, another place, or a cut: refused."""
    sealed = bytearray(sealed_content(content, KEK, bound_to=b"here"))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    sound = sealed_content(content, KEK, bound_to=b"here")

    for damaged, key, bound_to in [
        (bytes(sealed), KEK, b"here"),
        (sound, OTHER, b"here"),
        (sound, KEK, b"there"),
        (sound[:-1], KEK, b"here"),
        (b"", KEK, b"here"),
    ]:
        with pytest.raises(IntegrityError, match="partial: does not open"):
            opened_content(damaged, key, bound_to=bound_to, where="partial")


@given(one=st.lists(st.text("ab/", max_size=3), max_size=3), two=st.lists(st.text("ab/", max_size=3), max_size=3))
def test_derived_keys_are_equal_only_for_equal_parts(one: list[str], two: list[str]) -> None:
    """Parts are told apart whatever they hold: ("a", "b") and ("ab",) give two keys."""
    keys = [derived_key(KEK, "partial", *parts) for parts in (one, two)]

    assert (keys[0] == keys[1]) == (one == two)
    assert derived_key(KEK, "name", *one) != keys[0] != derived_key(OTHER, "partial", *one)


def test_key_check_tells_keys_apart_and_holds_none() -> None:
    """The check is the same for one key, differs for two, and is not the key."""
    assert key_check(KEK) == key_check(bytes(KEK)) != key_check(OTHER)
    assert KEK.hex() not in key_check(KEK)
