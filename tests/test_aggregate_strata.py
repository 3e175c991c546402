"""Cells of a crossing against sums made one record at a time."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from aggregate.records import as_records, no_records
from aggregate.strata import Cell, Key, cells, require_conserved
from schemas.tables import STATUS_SCORED, partial_schema
from schemas.tally import ExactSum, Tally, pool
from tests.made_runs import MadeRecord, digest16, made_records

FEATURES = ["age_band", "sex"]
COLUMNS = ["department", "feature.age_band", "feature.sex"]


def frame_of(records: Sequence[MadeRecord]) -> pl.DataFrame:
    """The records as partials of one row each."""
    return pl.concat([no_records(FEATURES), *map(_one, records)])


def _one(record: MadeRecord) -> pl.DataFrame:
    scored = record.loss is not None
    row = {
        "record_id": record.record_id,
        "patient_id": None if record.patient is None else digest16(record.patient),
        "encounter_id": None,
        "status": STATUS_SCORED if scored else record.reason,
        "loss_nats": record.loss,
        "check_loss_nats": None,
        "num_tokens": record.num_tokens if scored else 0,
        "num_words": record.num_words if scored else 0,
        "num_bytes": record.num_bytes if scored else 0,
        "num_windows": 1,
        "precision": "fp32",
        "feature.age_band": record.features[0],
        "feature.sex": record.features[1],
    }
    schema = partial_schema(FEATURES)
    return as_records(schema.empty_table().from_pylist([row], schema=schema), record.code)


def plain_cells(records: Sequence[MadeRecord], columns: Sequence[str]) -> dict[Key, Cell]:
    """The same cells by plain Python."""
    groups: dict[Key, list[MadeRecord]] = defaultdict(list)
    for record in records:
        values = dict(zip(COLUMNS, (record.code, *record.features), strict=True))
        groups[tuple(values[name] for name in columns)].append(record)
    found = {}
    for key, group in groups.items():
        scored = [record for record in group if record.loss is not None]
        tallies = [
            Tally(ExactSum.of([record.loss or 0.0]), record.num_tokens, record.num_words, record.num_bytes, 1)
            for record in scored
        ]
        known = {record.patient for record in scored if record.patient is not None}
        found[key] = Cell(
            key=key,
            tally=pool(tallies),
            num_skipped=len(group) - len(scored),
            num_patients=len(known),
            num_without_patient=sum(record.patient is None for record in scored),
        )
    return found


@given(made_records(features=2), st.sets(st.sampled_from(COLUMNS), min_size=1).map(sorted))
def test_cells_equal_sums_over_records(records: list[MadeRecord], columns: list[str]) -> None:
    """Every cell of every crossing has the exact sum, counts and patients of its records; null and "" stay apart."""
    found = cells(frame_of(records), columns)

    assert {cell.key: cell for cell in found} == plain_cells(records, columns)


@given(made_records(features=2), st.integers(0, 2**32))
def test_order_of_records_does_not_change_a_cell(records: list[MadeRecord], seed: int) -> None:
    """Cells come in the order of their keys with equal bits, however the records lie."""
    shuffled = random.Random(seed).sample(records, len(records))

    assert cells(frame_of(shuffled), COLUMNS) == cells(frame_of(records), COLUMNS)


@given(made_records(features=2), st.sampled_from([[], ["department"], COLUMNS]))
def test_cells_add_up_to_the_whole(records: list[MadeRecord], columns: list[str]) -> None:
    """The tallies of a crossing pool to the tally of all records, bit for bit."""
    found = cells(frame_of(records), columns)

    whole = pool(
        Tally(ExactSum.of([record.loss]), record.num_tokens, record.num_words, record.num_bytes, 1)
        for record in records
        if record.loss is not None
    )
    require_conserved(found, whole, where="test")


def test_null_comes_after_every_value() -> None:
    """A missing value is a stratum of its own, after the empty one and all others."""
    records = [MadeRecord(f"n{index}", features=(value, None)) for index, value in enumerate([None, "z", "", "a"])]

    found = cells(frame_of(records), ["feature.age_band"])

    assert [cell.key for cell in found] == [("",), ("a",), ("z",), (None,)]
