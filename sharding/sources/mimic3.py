"""MIMIC-III 1.4: NOTEEVENTS, with department, age, sex and diagnosis from SERVICES, TRANSFERS, PATIENTS, DIAGNOSES_ICD.

Tables and columns: https://mimic.mit.edu/docs/iii/tables/. A note whose time is not known counts as written at the end
of its day. Births of patients over 89 lie 300 years back: they are all pooled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from sharding.features import sex_of, year_of
from sharding.intended import MARKED_ERROR
from sharding.sources.adapter import NOTES, Adapted
from sharding.sources.cells import age_bands, cells, ends_of_days, mapped, moments, timestamps, to_arrow
from sharding.sources.families import FileKind, TableFamily
from sharding.sources.joins import CONFLICT, TIME, answers, completed_lookup, telling
from sharding.sources.keyed import KEY
from sharding.sources.lookup_plans import LookupKind, LookupPlan, alone
from sharding.sources.mimic import (
    CONFLICTING_PATIENTS,
    DIAGNOSES,
    FEATURES,
    FLAGS,
    INTEGERS,
    PATIENTS,
    SERVICES,
    TRANSFERS,
    stay_kinds,
    stays_of,
    timed,
)
from sharding.sources.roles import counted, to_roles

KINDS = (
    FileKind(
        NOTES,
        None,
        ("row_id", "subject_id", "chartdate", "category", "text"),
        ("hadm_id", "charttime", "iserror"),
    ),
    FileKind(SERVICES, "services", ("hadm_id", "transfertime", "curr_service"), ("subject_id",)),
    FileKind(
        TRANSFERS,
        "transfers",
        ("hadm_id", "curr_careunit", "intime", "outtime"),
        ("subject_id", "eventtype"),
        nullable=("curr_careunit", "outtime"),
    ),
    FileKind(PATIENTS, "patients", ("subject_id",), ("gender", "dob")),
    FileKind(DIAGNOSES, "diagnoses_icd", ("hadm_id", "seq_num", "icd9_code"), ("subject_id",)),
)
_NOTE_CELLS = ("subject_id", "hadm_id", "chartdate", "charttime", "category")
_SIDE_CELLS = {
    SERVICES: ("subject_id", "hadm_id", "transfertime", "curr_service"),
    TRANSFERS: ("subject_id", "hadm_id", "eventtype", "curr_careunit", "intime", "outtime"),
    DIAGNOSES: ("subject_id", "hadm_id", "seq_num", "icd9_code"),
    PATIENTS: ("subject_id", "dob", "gender"),
}
# Columns that MIMIC-IV has under other names.
_RENAMED = {"curr_careunit": "careunit", "icd9_code": "icd_code"}


def _side_cells(use: str, table: pa.Table | None) -> pl.DataFrame:
    found = cells(table, _SIDE_CELLS[use], integers=INTEGERS).rename(_RENAMED, strict=False)
    return timed(use, found.with_columns(icd_version=pl.lit("9")))


def _person_rows(people: pl.DataFrame) -> pl.DataFrame:
    sex = mapped(people["gender"], sex_of).alias("sex")
    return telling(people.select(pl.col("subject_id").alias(KEY), "dob", sex)).drop_nulls(KEY)


def _records(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Adapted:
    """What ISERROR marks is rejected."""
    marked = _marked(rows)
    kept = rows.filter(to_arrow(~marked))
    notes = _timed(cells(kept, _NOTE_CELLS, integers=INTEGERS))
    stays = stays_of(notes, lookups)
    people = answers(notes["subject_id"], lookups[PATIENTS])
    found = notes.select(
        stays["department"],
        pl.col("subject_id").alias("patient"),
        stays["encounter"],
        timestamps(notes[TIME]),
        age_bands(people["dob"], notes["day"]),
        stays["diagnosis_chapter"],
        pl.col("category").alias("note_type"),
        people["sex"],
        mapped(notes["day"], year_of).alias("year"),
    )
    rejected = +Counter({MARKED_ERROR: int(marked.sum())})
    flags = stays.select(*FLAGS, people[CONFLICT].alias(CONFLICTING_PATIENTS))
    return counted(to_roles(kept, found, ids="row_id", texts="text", rejected=rejected), flags)


def _marked(rows: pa.Table) -> pl.Series:
    """Where ISERROR is one; a table that went through pandas says 1.0."""
    errors = cells(rows, ("iserror",))["iserror"]
    return (errors.cast(pl.Float64, strict=False) == 1).fill_null(False)


def _timed(notes: pl.DataFrame) -> pl.DataFrame:
    """With ``time`` in microseconds, and ``day``: the cell that says the note's date."""
    exact = moments(notes["charttime"])
    return notes.with_columns(
        pl.coalesce(exact, ends_of_days(notes["chartdate"])).alias(TIME),
        day=pl.when(exact.is_not_null()).then("charttime").otherwise("chartdate"),
    )


_PEOPLE = LookupKind(PATIENTS, (PATIENTS,), _person_rows, alone(completed_lookup))
# Patient is SUBJECT_ID, encounter HADM_ID, the record id ROW_ID.
ADAPTER = TableFamily(
    name="mimic3",
    features=FEATURES,
    kinds=KINDS,
    lookup_plan=LookupPlan(_side_cells, (*stay_kinds(), _PEOPLE)),
    make_records=_records,
)
