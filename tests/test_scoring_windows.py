"""Windows: every token is scored exactly once, for every length, window and step."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from scoring.windows import Window, windows


def scored_targets(cut: list[Window]) -> list[int]:
    """Positions that the windows score, in the order in which they do."""
    return [
        target
        for window in cut
        for target in range(window.start + window.num_context + 1, window.start + window.num_inputs + 1)
    ]


@given(num_positions=st.integers(0, 400), max_length=st.integers(1, 60), data=st.data())
def test_each_target_is_scored_once_and_in_order(num_positions: int, max_length: int, data: st.DataObject) -> None:
    """Positions 1 … n-1 are scored once each, ascending, by windows of at most L inputs at multiples of S."""
    stride = data.draw(st.integers(1, max_length))

    cut = list(windows(num_positions, max_length=max_length, stride=stride))

    assert scored_targets(cut) == list(range(1, num_positions))
    assert [window.start for window in cut] == [index * stride for index in range(len(cut))]
    assert all(0 < window.num_inputs <= max_length for window in cut)
    assert all(0 < window.num_scored == window.num_inputs - window.num_context for window in cut)


@given(num_positions=st.integers(2, 400), max_length=st.integers(1, 60), data=st.data())
def test_targets_of_context_are_not_scored(num_positions: int, max_length: int, data: st.DataObject) -> None:
    """With C positions of context targets C+1 … n-1 are scored once each, by the windows that there are without."""
    stride = data.draw(st.integers(1, max_length))
    num_context = data.draw(st.integers(0, min(max_length, num_positions - 1) - 1))

    cut = list(windows(num_positions, max_length=max_length, stride=stride, num_context=num_context))

    whole = list(windows(num_positions, max_length=max_length, stride=stride))
    assert scored_targets(cut) == list(range(num_context + 1, num_positions))
    assert cut == [Window(whole[0].start, whole[0].num_inputs, num_context), *whole[1:]]


@given(num_positions=st.integers(2, 400), max_length=st.integers(1, 60), data=st.data())
def test_a_token_has_all_the_context_that_its_window_can_give(
    num_positions: int, max_length: int, data: st.DataObject
) -> None:
    """From the second window on, a target sees at least L - S + 1 positions before it."""
    stride = data.draw(st.integers(1, max_length))

    later = list(windows(num_positions, max_length=max_length, stride=stride))[1:]

    assert all(window.num_context + 1 >= max_length - stride + 1 for window in later)


def test_windows_are_lazy() -> None:
    """The first windows of a record of 10**15 tokens come at once."""
    first = list(islice(windows(10**15, max_length=128, stride=100), 3))

    assert first == [Window(0, 128, 0), Window(100, 128, 28), Window(200, 128, 28)]


def test_a_very_long_record_is_covered() -> None:
    """100,000 tokens after a prefix take 782 windows of 128."""
    cut = list(windows(100_001, max_length=128, stride=128))

    assert len(cut) == 782
    assert sum(window.num_scored for window in cut) == 100_000


@pytest.mark.parametrize("stride", [0, -1, 11])
def test_a_stride_that_loses_tokens_is_refused(stride: int) -> None:
    """S > L, and S < 1, are usage errors that name both numbers."""
    with pytest.raises(UsageError, match=f"stride {stride} must be between 1 and max_length 10"):
        next(windows(100, max_length=10, stride=stride))
