"""Exact cover as a law."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregate.cover import require_exact_cover
from schemas.errors import IntegrityError
from schemas.partials import BlockKey

KEYS = st.builds(BlockKey, st.sampled_from(["d-0123456789ab-00000", "d-0123456789ab-00001"]), st.integers(0, 3))


@given(st.lists(KEYS, unique=True), st.lists(KEYS))
def test_only_a_permutation_of_the_expected_blocks_covers(expected: list[BlockKey], scored: list[BlockKey]) -> None:
    """The check passes exactly if the scored blocks are the expected ones, each once, in any order."""
    covers = Counter(expected) == Counter(scored)

    try:
        require_exact_cover(expected, scored, where="COMPLETE")
        passed = True
    except IntegrityError:
        passed = False

    assert passed == covers


def test_message_counts_and_names_what_is_wrong() -> None:
    """One line says how many blocks are missing, unknown and repeated, and names some of them."""
    first, second, third = (BlockKey("d-0123456789ab-00000", block) for block in range(3))

    with pytest.raises(IntegrityError) as caught:
        require_exact_cover([first, second], [second, second, third], where="run/COMPLETE")

    assert "run/COMPLETE: " in str(caught.value)
    assert "1 missing, 1 unknown, 1 repeated" in str(caught.value)
    assert str(third) in str(caught.value)
