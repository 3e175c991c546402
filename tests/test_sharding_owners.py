"""A stay answers for its own patient, for anyone if no row says whose it is, and for nobody else."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sharding.sources.joins import answers, lookup
from sharding.sources.keyed import KEY
from sharding.sources.owners import IS_FOREIGN, KEYS, keys_of, owner_rows, owner_table, stay_key

# Texts whose joins could be taken for each other.
IDS = st.one_of(st.none(), st.sampled_from(["1", "2", "1:2", "2:1", "1:1", "\x1f", "é"]))
PAIRS = st.lists(st.tuples(IDS, IDS), max_size=10)
Pairs = list[tuple[str | None, str | None]]


def frame_of(pairs: Pairs) -> pl.DataFrame:
    """Stays and patients."""
    return pl.DataFrame(pairs, schema={"stay": pl.String, "patient": pl.String}, orient="row")


def owners_of(*tables: Pairs) -> pa.Table:
    """Whose stays are, by the rows of some tables."""
    return owner_table(pl.concat([owner_rows(frame_of(rows), stay="stay", patient="patient") for rows in tables]))


@given(PAIRS, PAIRS, PAIRS)
def test_a_stay_is_foreign_if_only_others_are_named(one: Pairs, other: Pairs, notes: Pairs) -> None:
    """In any of the tables; who names nobody contradicts nobody."""
    owners = owners_of(one, other)

    found = keys_of(frame_of(notes), owners, stay="stay", patient="patient")

    named = {stay: {whose for at, whose in [*one, *other] if at == stay and whose} for stay, _ in notes if stay}
    expected = [bool(whose and named.get(stay or "") and whose not in named[stay or ""]) for stay, whose in notes]
    assert found[IS_FOREIGN].to_list() == expected


@given(PAIRS, PAIRS)
def test_a_note_finds_the_rows_of_its_patient_and_of_nobody(rows: Pairs, notes: Pairs) -> None:
    """And no others; a note of nobody finds those of the stay's only patient."""
    told = frame_of(rows).with_columns(stay_key("stay", "patient").alias(KEY))
    owners = owners_of(rows)

    keys = keys_of(frame_of(notes), owners, stay="stay", patient="patient")

    answered = [answers(keys[name], lookup(told)).select("stay", "patient").rows() for name in KEYS]
    found = [{row for row in of_note if row[0]} for of_note in zip(*answered, strict=True)]
    assert found == [rows_for(stay, whose, rows) for stay, whose in notes]


def rows_for(stay: str | None, whose: str | None, rows: Pairs) -> set[tuple[str | None, str | None]]:
    """Rows of a stay that speak of the patient of a note."""
    named = {patient for at, patient in rows if at == stay and patient}
    if stay is None or (whose and named and whose not in named):
        return set()
    own = whose or (min(named) if len(named) == 1 else None)
    return {row for row in rows if row in ((stay, own), (stay, None))}
