"""Items made ahead by a thread: the same items in the same order, and no thread is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.ahead import ahead


@given(num_items=st.integers(0, 20), depth=st.integers(1, 4))
def test_items_come_in_their_order(num_items: int, depth: int) -> None:
    """Whatever the depth, nothing is lost, doubled or moved."""
    assert list(ahead(iter(range(num_items)), depth=depth)) == list(range(num_items))


def test_an_error_comes_where_its_item_would_have_come() -> None:
    """What the maker raises is raised to the user, after the items before it."""

    def broken() -> Iterator[int]:
        yield from (1, 2)
        raise KeyError("three")

    found: list[int] = []

    with pytest.raises(KeyError, match="three"):
        found.extend(ahead(broken()))

    assert found == [1, 2]


def test_no_more_than_the_depth_is_made_ahead() -> None:
    """The maker waits: one item in its hands, ``depth`` in the queue, and what was taken."""
    num_made = 0

    def made() -> Iterator[int]:
        nonlocal num_made
        for item in range(100):
            num_made += 1
            yield item

    items = ahead(made(), depth=2)
    next(items)
    time.sleep(0.3)

    assert num_made <= 4
    assert list(items) == list(range(1, 100))


def test_a_user_who_leaves_ends_the_thread() -> None:
    """Closing the iterator early stops its maker."""
    items = ahead(iter(range(1000)), depth=1)
    next(items)

    items.close()  # type: ignore[attr-defined]

    assert not any(thread.name == "ahead" for thread in threading.enumerate())
