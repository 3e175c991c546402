"""The tokens of a tile: as many as asked for, or halved until the largest tiles fit into memory.

Shapes are part of a run's fingerprint, so they may shrink only while there is no result, and all ranks take those of
the rank with the least room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from schemas.errors import TemporaryError, UsageError
from scoring.devices import release_freed_memory
from scoring.peaks import MemoryLimit
from scoring.tiles import Row, TileFunction, TileMenu, make_menu

logger = logging.getLogger("scoring.budget")

TileFunctionOf = Callable[[TileMenu], TileFunction]


@dataclass(frozen=True, slots=True)
class Budget:
    """How a session may choose its tile tokens.

    Attributes:
        may_shrink: There is no result yet, so they may be fewer than asked for.
        agree: Takes what fits on this rank and gives what fits on all.
    """

    may_shrink: bool = False
    agree: Callable[[int], int] = int

    def fitting(self, menu: TileMenu, compute_of: TileFunctionOf, limit: MemoryLimit | None = None) -> TileMenu:
        """The menu that was asked for, or one of smaller tiles for which there is room on every rank.

        Args:
            menu: As asked for.
            compute_of: Gives the tile function of a menu.
            limit: Memory that tiles may take, where it is not all there is.

        Raises:
            UsageError: the longest row alone takes more.
        """
        if not self.may_shrink:
            return menu
        tokens = self.agree(fitting_menu(menu, compute_of, limit).tokens)
        return menu if tokens == menu.tokens else _resized(menu, tokens)


def fitting_menu(menu: TileMenu, compute_of: TileFunctionOf, limit: MemoryLimit | None = None) -> TileMenu:
    """Run the largest tiles, and halve the tokens until there is room for them or every tile holds one row.

    Where memory ran out, what fits is halved once more: texts, tokens and partials need room beside the tiles. A single
    row is as long as the record's window, which no budget shortens; it is tried only against a limit.

    Raises:
        UsageError: the longest row alone takes more than the limit.
    """
    if limit is not None:
        _require_room_for_one_row(menu, compute_of, limit)
    fitting = menu
    while not _fits(fitting, compute_of, limit):
        logger.warning("tiles of %d tokens do not fit into memory", fitting.tokens)
        fitting = _resized(fitting, max(1, fitting.tokens // 2))
        release_freed_memory()  # the parts of what did not fit
    if fitting == menu or limit is not None:
        return fitting
    release_freed_memory()
    spared = _resized(fitting, max(1, fitting.tokens // 2))
    logger.warning("tiles have %d tokens", spared.tokens)
    return spared


def probed_lengths(menu: TileMenu) -> list[int]:
    """Of the tiles of several rows the one with most tokens, and the longest, whose attention is the largest."""
    several = [length for length in menu.lengths if menu.rows_of(length) > 1]
    if not several:
        return []
    return sorted({several[-1], max(several, key=lambda length: (menu.rows_of(length) * length, length))})


def _fits(menu: TileMenu, compute_of: TileFunctionOf, limit: MemoryLimit | None) -> bool:
    compute, meter = compute_of(menu), None if limit is None else limit.measure()
    try:
        for length in probed_lengths(menu):
            _run_full_tile(menu, compute, length)
    except TemporaryError:  # out of memory
        return False
    return meter is None or not meter.is_over


def _require_room_for_one_row(menu: TileMenu, compute_of: TileFunctionOf, limit: MemoryLimit) -> None:
    single, length = _resized(menu, 1), menu.lengths[-1]
    compute = compute_of(single)
    # Weights are laid out, and rounded, at their first use: they are no tile's memory.
    _run_full_tile(single, compute, menu.lengths[0])
    meter = limit.measure()
    _run_full_tile(single, compute, length)
    if meter.is_over:
        raise UsageError(
            f"memory_budget: a row of {length} tokens takes {meter.num_used()} bytes, {limit.num_bytes} are left to "
            "tiles; raise --memory-budget, or lower --max-length"
        )


def _run_full_tile(menu: TileMenu, compute: TileFunction, length: int) -> None:
    row = Row(np.zeros(length, np.int64), np.zeros(length, np.int64))
    compute(length, [row] * menu.rows_of(length))


def _resized(menu: TileMenu, tokens: int) -> TileMenu:
    return make_menu(menu.lengths[-1], tokens=tokens, one_row=menu.one_row)
