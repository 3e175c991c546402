"""The fixed menu of forward-pass shapes, and the pools in which rows wait for a full tile.

A tile is B rows of T tokens. T depends on a row's own length alone and B on T alone, so whatever the neighbours, the
world size or the order of work, a row is always computed by the same kernels on the same shape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

FINE_STEP = 16
FINE_UP_TO = 128
STEPS_PER_OCTAVE = 8
SINGLE_STEP = 32


@dataclass(frozen=True, slots=True)
class Row:
    """What a tile computes of one window.

    Attributes:
        inputs: int64 ids [num_inputs].
        targets: int64 ids of the scored targets [num_inputs - num_context].
        num_context: Leading inputs whose targets are not scored here.
    """

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    num_context: int = 0


TileFunction = Callable[[int, Sequence[Row]], list[NDArray[np.float64]]]
"""Takes a length T and at most B rows; gives each row's scored losses in nats, float64."""


class HasLength(Protocol):
    """What a pool needs to know of a row."""

    @property
    def num_inputs(self) -> int:
        """Input tokens of the row."""


RowT = TypeVar("RowT", bound=HasLength)


@dataclass(frozen=True, slots=True)
class TileMenu:
    """All shapes of a run.

    Attributes:
        lengths: Row lengths T, ascending; the last one is ``max_length``.
        tokens: Tokens of a tile, which set the rows of each length.
        one_row: Every tile holds a single row.
    """

    lengths: tuple[int, ...]
    tokens: int
    one_row: bool

    def length_of(self, num_inputs: int) -> int:
        """The smallest T that holds a row."""
        return self.lengths[bisect_left(self.lengths, num_inputs)]

    def rows_of(self, length: int) -> int:
        """B for a T."""
        return 1 if self.one_row else max(1, self.tokens // length)


def make_menu(max_length: int, *, tokens: int, one_row: bool) -> TileMenu:
    """Lengths close enough to pad little, and far enough apart that rows of one length fill a tile.

    Steps of 16 up to 128, then eight to the octave: at most a ninth of a longer row is padding. A row that fills a tile
    by itself waits for no other, so there steps are no longer than 32.
    """
    lengths = [FINE_STEP]
    while lengths[-1] < max_length:
        last = lengths[-1]
        step = FINE_STEP if last < FINE_UP_TO else (1 << (last.bit_length() - 1)) // STEPS_PER_OCTAVE
        is_single = one_row or tokens // (last + step) <= 1
        lengths.append(last + min(step, SINGLE_STEP) if is_single else last + step)
    shorter = (length for length in lengths if length < max_length)
    return TileMenu(lengths=(*shorter, max_length), tokens=tokens, one_row=one_row)


class RowPools(Generic[RowT]):
    """Rows of any block, waiting by length; a full pool is handed out as a tile."""

    def __init__(self, menu: TileMenu) -> None:
        self._menu = menu
        self._waiting: dict[int, list[RowT]] = defaultdict(list)

    def push(self, row: RowT) -> tuple[int, list[RowT]] | None:
        """Add a row; a length and its rows when they fill a tile."""
        length = self._menu.length_of(row.num_inputs)
        waiting = self._waiting[length]
        waiting.append(row)
        return self._take(length) if len(waiting) == self._menu.rows_of(length) else None

    def drain(self, wanted: Callable[[RowT], bool] = lambda _: True) -> Iterator[tuple[int, list[RowT]]]:
        """Hand out tiles in which a wanted row waits; dummy rows will fill them."""
        for length in sorted(self._waiting):
            if any(map(wanted, self._waiting[length])):
                yield self._take(length)

    def _take(self, length: int) -> tuple[int, list[RowT]]:
        return length, self._waiting.pop(length)
