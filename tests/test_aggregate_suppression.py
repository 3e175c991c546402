"""No hidden cell can be derived from the published ones, by an attacker who shares no code with the suppression."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from aggregate.atoms import Atoms, join
from aggregate.suppression import hidden_sets

Row = tuple[int, ...]
Made = tuple[list[Row], list[tuple[int, int]], list[frozenset[bytes]], list[tuple[int, ...]]]

COUNTS = st.one_of(st.integers(0, 4), st.integers(0, 30), st.just(60))


@st.composite
def tables(draw: st.DrawFn) -> Made:
    """Combinations of two or three columns that occur, with counts and patients, and the crossings to report."""
    width = draw(st.integers(2, 3))
    sizes = [draw(st.integers(2, 3 if width == 3 else 4)) for _ in range(width)]
    space = list(product(*map(range, sizes)))
    values = sorted(draw(st.sets(st.sampled_from(space), min_size=2, max_size=14)))
    skips = draw(st.booleans())
    counts = [(draw(COUNTS), draw(st.integers(0, 3)) if skips else 0) for _ in values]
    counts = [pair if sum(pair) else (1, 0) for pair in counts]
    known = draw(st.booleans())
    pool = [bytes([index]) for index in range(30)]
    patients = [
        frozenset(draw(st.lists(st.sampled_from(pool), max_size=scored))) if known else frozenset()
        for scored, _ in counts
    ]
    choices = [columns for size in range(1, width + 1) for columns in combinations(range(width), size)]
    crossings = draw(st.lists(st.sampled_from(choices), min_size=1, max_size=4, unique=True))
    return values, counts, patients, crossings


def atoms_of(made: Made) -> Atoms:
    """The made table as the program holds it."""
    values, counts, patients, crossings = made
    keys = [[tuple(str(value[column]) for column in crossing) for value in values] for crossing in ((), *crossings)]
    return join(counts, patients, keys)


def strata_of(made: Made) -> list[tuple[int, tuple[str, ...], list[int]]]:
    """Every stratum as the place of its crossing, its key and the 0/1 vector over the combinations."""
    values, _, _, crossings = made
    found = []
    for place, crossing in enumerate(((), *crossings)):
        labels = [tuple(str(value[column]) for column in crossing) for value in values]
        found += [(place, key, [int(label == key) for label in labels]) for key in sorted(set(labels))]
    return found


def split(made: Made, min_cell: int) -> tuple[list[list[int]], list[list[int]]]:
    """Vectors of the published and of the hidden strata."""
    atoms = atoms_of(made)
    hidden = hidden_sets(atoms, min_cell=min_cell)
    strata = strata_of(made)
    published = [vector for place, key, vector in strata if not hidden[atoms.keys[place][key]]]
    return published, [vector for place, key, vector in strata if hidden[atoms.keys[place][key]]]


def in_row_space(rows: list[list[int]], vector: list[int]) -> bool:
    """Gaussian elimination over the rationals."""
    basis: list[tuple[int, list[Fraction]]] = []
    for row in [*rows, vector]:
        rest = [Fraction(number) for number in row]
        for pivot, other in basis:
            rest = [mine - rest[pivot] * theirs for mine, theirs in zip(rest, other, strict=True)]
        lead = next((place for place, number in enumerate(rest) if number), None)
        if lead is None:
            if row is vector:
                return True
            continue
        basis.append((lead, [number / rest[lead] for number in rest]))
    return False


def is_small(made: Made, vector: list[int], min_cell: int) -> bool:
    """Fewer records or known patients than the threshold, and not none."""
    _, counts, patients, _ = made
    inside = [place for place, member in enumerate(vector) if member]
    scored = sum(counts[place][0] for place in inside)
    total = scored + sum(counts[place][1] for place in inside)
    known = frozenset[bytes]().union(*(patients[place] for place in inside))
    return 0 < scored < min_cell or 0 < total < min_cell or 0 < len(known) < min_cell


@settings(max_examples=60)
@given(tables(), st.sampled_from([3, 11]))
def test_small_strata_are_hidden_and_no_hidden_stratum_is_a_sum_of_published_ones(made: Made, min_cell: int) -> None:
    """Every small stratum is hidden, and elimination over fractions finds no hidden one in the row space."""
    published, hidden = split(made, min_cell)

    assert not any(is_small(made, vector, min_cell) for vector in published)
    assert not any(in_row_space(published, vector) for vector in hidden)


@settings(max_examples=40)
@given(tables(), st.sampled_from([3, 11]))
def test_bounds_pin_no_hidden_count(made: Made, min_cell: int) -> None:
    """With counts that are not negative and listed strata of one record at least, two values stay possible."""
    published, hidden = split(made, min_cell)
    total = np.array([sum(pair) for pair in made[1]])
    seen, unseen = np.array(published).reshape(-1, len(total)), np.array(hidden).reshape(-1, len(total))
    equal = {"A_eq": seen, "b_eq": seen @ total} if len(seen) else {}

    for vector in unseen:
        low, high = (
            linprog(sign * vector, A_ub=-unseen, b_ub=-np.ones(len(unseen)), bounds=(0, 10_000), **equal)
            for sign in (1, -1)
        )

        assert low.success
        assert high.success
        assert -high.fun - low.fun > 0.99


@settings(max_examples=60)
@given(tables(), st.sampled_from([3, 11]))
def test_no_difference_of_published_strata_leaves_few_records(made: Made, min_cell: int) -> None:
    """A published stratum less the published ones inside it, of one crossing, is empty or as large as one shown."""
    atoms = atoms_of(made)
    hidden = hidden_sets(atoms, min_cell=min_cell)
    shown = [(place, vector) for place, key, vector in strata_of(made) if not hidden[atoms.keys[place][key]]]

    for _, parent in shown:
        for crossing in {place for place, _ in shown}:
            rest = list(parent)
            for _, child in (item for item in shown if item[0] == crossing):
                if all(mine <= theirs for mine, theirs in zip(child, parent, strict=True)):
                    rest = [mine - theirs for mine, theirs in zip(rest, child, strict=True)]

            assert not is_small(made, rest, min_cell)


def small_table(rows: list[list[int]]) -> Made:
    """A full table of two columns with both margins, by its counts."""
    values = [(row, column) for row in range(len(rows)) for column in range(len(rows[0]))]
    counts = [(rows[row][column], 0) for row, column in values]
    return values, counts, [frozenset()] * len(values), [(0,), (1,), (0, 1)]


def test_one_small_cell_of_a_table_takes_the_three_smallest_that_shield_it() -> None:
    """A cell in a table with margins needs a second one in its row and column, and the corner between them."""
    made = small_table([[3, 40, 90], [50, 45, 90], [90, 90, 90]])

    atoms = atoms_of(made)
    hidden = hidden_sets(atoms, min_cell=11)

    assert [key for key, index in atoms.keys[3].items() if hidden[index]] == [
        ("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"),
    ]  # fmt: skip
    assert not hidden[list(atoms.keys[0].values()) + list(atoms.keys[1].values()) + list(atoms.keys[2].values())].any()


def test_nothing_small_hides_nothing() -> None:
    """A table of large cells is published whole."""
    atoms = atoms_of(small_table([[30, 40], [50, 60]]))

    assert not hidden_sets(atoms, min_cell=11).any()


def test_a_stratum_inside_another_by_chance_hides_the_few_records_between_them() -> None:
    """Where one department's records are all but three of a band's, not both can be shown."""
    values, counts = [(0, 0), (1, 0), (1, 1)], [(100, 0), (3, 0), (90, 0)]
    made = (values, counts, [frozenset[bytes]()] * 3, [(0,), (1,)])

    published, _ = split(made, 11)

    assert not ([1, 0, 0] in published and [1, 1, 0] in published)


def test_a_whole_of_strata_of_one_record_each_is_hidden() -> None:
    """As many records as listed strata pin each to one, so the total cannot be shown either."""
    made = ([(index,) for index in range(20)], [(1, 0)] * 20, [frozenset[bytes]()] * 20, [(0,)])

    published, hidden = split(made, 11)

    assert (published, len(hidden)) == ([], 21)
