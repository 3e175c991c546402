"""Cutting a long record into overlapping windows so that every token is scored exactly once.

Positions 0 … n-1 are the prefix token, if any, and the record's tokens. Position p predicts position p + 1, so the
targets are 1 … n-1. Window k feeds positions [k·S, k·S + L) and scores those targets that no earlier window scored.
With C positions of context behind the prefix the targets are C+1 … n-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.errors import UsageError


@dataclass(frozen=True, slots=True)
class Window:
    """One forward-pass row of a record.

    Attributes:
        start: First input position.
        num_inputs: Input positions, at most ``max_length``; the last one predicts position ``start + num_inputs``.
        num_context: Leading inputs whose targets are not scored here: they are context, or scored by an earlier window.
    """

    start: int
    num_inputs: int
    num_context: int

    @property
    def num_scored(self) -> int:
        """Targets that this window scores."""
        return self.num_inputs - self.num_context


def windows(num_positions: int, *, max_length: int, stride: int, num_context: int = 0) -> Iterator[Window]:
    """The windows of a record, lazily.

    Args:
        num_positions: Prefix, context and tokens; fewer than two give no window.
        max_length: L, the most inputs of a window.
        stride: S, the step between windows, at most L.
        num_context: C, less than L: the first C targets are not scored.

    Raises:
        UsageError: S > L, which would leave tokens unscored.
    """
    if not 0 < stride <= max_length:
        raise UsageError(f"stride {stride} must be between 1 and max_length {max_length}; lower --stride")
    num_targets, scored, start = num_positions - 1, num_context, 0
    while scored < num_targets:
        num_inputs = min(max_length, num_targets - start)
        yield Window(start=start, num_inputs=num_inputs, num_context=scored - start)
        scored = start + num_inputs
        start += stride
