"""Columns of parts in a partial: they add up exactly, or the file is refused."""

from __future__ import annotations

import math
import random
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import IntegrityError
from schemas.partials import read_partial, write_partial
from schemas.parts import loss_column, merge_parts, part_tallies, parts_of, tokens_column
from schemas.tables import STATUS_SCORED, partial_schema
from schemas.tally import ExactSum
from tests.made_partials import FEATURES, KEY, RUN_ID, row, unchecked

PARTS = ["class.number", "class.other", "position.0-31", "position.32-"]
HALVES = st.lists(st.tuples(st.booleans(), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=8)


def split_table(halves: list[tuple[bool, int, int]]) -> pa.Table:
    """Rows whose losses are of two integers each, one a class and a band; or skipped ones."""
    rows = []
    for number, (is_scored, one, other) in enumerate(halves):
        made = row(
            number, status=STATUS_SCORED if is_scored else "no_tokens", loss_nats=float(one + other), num_tokens=3
        )
        for part, loss, count in zip(PARTS, (one, other) * 2, (1, 2) * 2, strict=True):
            made |= {loss_column(part): float(loss) if is_scored else None, tokens_column(part): count * is_scored}
        rows.append(made)
    return pa.Table.from_pylist(rows, schema=partial_schema(FEATURES, PARTS))


def changed(table: pa.Table, column: str, value: object) -> pa.Table:
    """The table with another value in the first row of a column."""
    rows = table.to_pylist()
    rows[0][column] = value
    return pa.Table.from_pylist(rows, schema=table.schema)


@given(halves=HALVES)
def test_parts_come_back_and_their_tallies_are_exact(
    halves: list[tuple[bool, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is written is read, with the parts that were asked for only; tallies are those of the rows."""
    table, folder = split_table(halves), tmp_path_factory.mktemp("run")
    partial = write_partial(folder, table, run_id=RUN_ID, key=KEY)

    found, _ = read_partial(partial, run_id=RUN_ID, features=FEATURES, parts=PARTS)

    assert found.equals(table)
    assert parts_of(found.schema) == PARTS
    tally = part_tallies(found)["class.number"]
    scored = [one for is_scored, one, _ in halves if is_scored]
    assert (tally.loss_nats, tally.num_tokens) == (ExactSum.of(map(float, scored)), len(scored))
    with pytest.raises(IntegrityError, match="columns differ"):
        read_partial(partial, run_id=RUN_ID, features=FEATURES)


@given(halves=HALVES, order=st.randoms(use_true_random=False))
def test_tallies_add_up_in_any_order(halves: list[tuple[bool, int, int]], order: random.Random) -> None:
    """Row by row, shuffled, they are those of the table."""
    rows = [part_tallies(split_table([half])) for half in halves]
    order.shuffle(rows)

    assert reduce(merge_parts, rows, part_tallies(split_table([]))) == part_tallies(split_table(halves))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("class.number.loss_nats", math.nextafter(5.0, 6.0)),
        ("position.32-.loss_nats", 7.5),
        ("class.other.loss_nats", None),
        ("class.other.loss_nats", math.inf),
        ("class.number.num_tokens", 2),
        ("class.number.num_tokens", -1),
        ("position.0-31.num_tokens", 0),
        ("loss_nats", math.nextafter(12.0, 13.0)),
        ("num_tokens", 4),
    ],
)
def test_one_unit_in_the_last_place_is_noticed(column: str, value: object, tmp_path: Path) -> None:
    """Rows whose parts are not the whole are neither written nor read."""
    table = changed(split_table([(True, 5, 7), (False, 0, 0)]), column, value)

    with pytest.raises(IntegrityError, match="rules of a partial"):
        write_partial(tmp_path, table, run_id=RUN_ID, key=KEY)
    with pytest.raises(IntegrityError, match="rules of a partial"):
        read_partial(unchecked(tmp_path, table), run_id=RUN_ID, features=FEATURES, parts=PARTS)


def test_sums_that_were_rounded_are_refused(tmp_path: Path) -> None:
    """Parts whose floating-point sum is the loss, but whose exact sum is not, do not add up."""
    table = split_table([(True, 2**53, 0)])
    table = changed(changed(table, "class.other.loss_nats", 1.0), "position.32-.loss_nats", 1.0)

    assert table.column("loss_nats")[0].as_py() == 2.0**53 + 1.0
    with pytest.raises(IntegrityError, match="rules of a partial"):
        write_partial(tmp_path, table, run_id=RUN_ID, key=KEY)


def test_a_case_feature_is_no_part() -> None:
    """A feature may be called as it likes."""
    assert parts_of(partial_schema(["class.x.loss_nats"], [])) == []
