"""Tiles: one shape for each row length, whatever else there is to compute, and no row lost on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from scoring.tiles import SINGLE_STEP, RowPools, TileMenu, make_menu

menus = st.builds(
    make_menu, st.integers(2, 3000), tokens=st.integers(16, 4096), one_row=st.sampled_from([False, False, True])
)


@dataclass(frozen=True)
class NumberedRow:
    """A row that is told from others of its length."""

    number: int
    num_inputs: int


@given(menus)
def test_the_menu_holds_every_length(menu: TileMenu) -> None:
    """Lengths ascend to max_length, and each row has the smallest one that holds it."""
    longest = menu.lengths[-1]

    chosen = [menu.length_of(num_inputs) for num_inputs in range(1, longest + 1)]

    assert list(menu.lengths) == sorted(set(menu.lengths))
    assert chosen == [min(n for n in menu.lengths if n >= num_inputs) for num_inputs in range(1, longest + 1)]


@given(st.integers(2, 100_000), st.data())
def test_the_menu_ends_at_max_length_and_pads_little(max_length: int, data: st.DataObject) -> None:
    """The last length is max_length itself; beyond 48 tokens at most a quarter of a row is padding."""
    menu = make_menu(max_length, tokens=1024, one_row=False)
    num_inputs = data.draw(st.integers(1, max_length))

    length = menu.length_of(num_inputs)

    assert menu.lengths[-1] == max_length
    assert num_inputs <= length <= max_length
    assert num_inputs <= 48 or (length - num_inputs) * 4 <= length


@given(st.integers(2, 5000), st.integers(16, 4096), st.booleans(), st.data())
def test_a_row_that_fills_a_tile_alone_pads_little(
    max_length: int, tokens: int, one_row: bool, data: st.DataObject
) -> None:
    """Where a tile holds one row, less than 32 of its tokens are padding: such rows wait for no others."""
    menu = make_menu(max_length, tokens=tokens, one_row=one_row)
    num_inputs = data.draw(st.integers(1, max_length))

    length = menu.length_of(num_inputs)

    assert menu.rows_of(length) > 1 or length - num_inputs < SINGLE_STEP


@given(st.integers(2, 3000), st.integers(2, 3000), st.integers(16, 4096))
def test_a_length_has_one_number_of_rows(one: int, other: int, tokens: int) -> None:
    """B follows from T and the run's tile_tokens, never from the menu around it."""
    first, second = (make_menu(longest, tokens=tokens, one_row=False) for longest in (one, other))

    shared = set(first.lengths) & set(second.lengths)

    assert all(first.rows_of(length) == second.rows_of(length) == max(1, tokens // length) for length in shared)


@given(st.integers(2, 3000), st.integers(16, 4096))
def test_one_row_menus_have_one_row(max_length: int, tokens: int) -> None:
    """With one_row every tile holds a single row."""
    menu = make_menu(max_length, tokens=tokens, one_row=True)

    assert {menu.rows_of(length) for length in menu.lengths} == {1}


@given(menus, st.data())
def test_pools_conserve_rows(menu: TileMenu, data: st.DataObject) -> None:
    """Each row comes out once, in a tile of its own length; pushing hands out full tiles only, draining the rest."""
    lengths = data.draw(st.lists(st.integers(1, menu.lengths[-1]), max_size=200))
    rows = [NumberedRow(number, length) for number, length in enumerate(lengths)]
    pools: RowPools[NumberedRow] = RowPools(menu)

    full = [tile for row in rows if (tile := pools.push(row))]
    rest = list(pools.drain())

    assert Counter(row for _, tile in full + rest for row in tile) == Counter(rows)
    assert all(menu.length_of(row.num_inputs) == length for length, tile in full + rest for row in tile)
    assert all(len(tile) == menu.rows_of(length) for length, tile in full)
    assert all(0 < len(tile) < menu.rows_of(length) for length, tile in rest)
    assert len({length for length, _ in rest}) == len(rest)
    assert list(pools.drain()) == []
