"""MIMIC-IV-Note 2.2: discharge and radiology, with services, transfers, patients and diagnoses_icd of MIMIC-IV's hosp.

Tables and columns: https://mimic.mit.edu/docs/iv/modules/note/ and https://mimic.mit.edu/docs/iv/modules/hosp/. Of a
patient's birth only the age in one year is told; 91 there stands for every age over 89. A discharge summary has a date
and no time: midnight there is no hour but the day, and such a note counts as written at the day's end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from sharding.features import POOLED_AGE, age_band_of, sex_of, year_of
from sharding.sources.adapter import NOTES, Adapted
from sharding.sources.cells import cells, ends_of_days, mapped, moments, timestamps
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
    FileKind(NOTES, None, ("note_id", "subject_id", "note_type", "text"), ("hadm_id", "charttime")),
    FileKind(SERVICES, "services", ("hadm_id", "transfertime", "curr_service"), ("subject_id",)),
    FileKind(
        TRANSFERS,
        "transfers",
        ("hadm_id", "careunit", "intime", "outtime"),
        ("subject_id", "eventtype"),
        nullable=("hadm_id", "careunit", "outtime"),
    ),
    FileKind(PATIENTS, "patients", ("subject_id",), ("gender", "anchor_age", "anchor_year")),
    FileKind(DIAGNOSES, "diagnoses_icd", ("hadm_id", "seq_num", "icd_code", "icd_version"), ("subject_id",)),
)
# A discharge summary, and an addendum to one.
_DISCHARGES = ("DS", "AD")
_DAY = r"^[0-9-]{10}$"
_MIDNIGHT = r"^[0-9-]{10}([T ]00:00(:00([.]0+)?)?)?$"

_NOTE_CELLS = ("subject_id", "hadm_id", "note_type", "charttime")
_SIDE_CELLS = {
    SERVICES: ("subject_id", "hadm_id", "transfertime", "curr_service"),
    TRANSFERS: ("subject_id", "hadm_id", "eventtype", "careunit", "intime", "outtime"),
    DIAGNOSES: ("subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"),
    PATIENTS: ("subject_id", "anchor_year", "anchor_age", "gender"),
}


def _side_cells(use: str, table: pa.Table | None) -> pl.DataFrame:
    return timed(use, cells(table, _SIDE_CELLS[use], integers=INTEGERS))


def _person_rows(people: pl.DataFrame) -> pl.DataFrame:
    sex = mapped(people["gender"], sex_of).alias("sex")
    return telling(people.select(pl.col("subject_id").alias(KEY), "anchor_year", "anchor_age", sex)).drop_nulls(KEY)


def _records(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Adapted:
    """Nothing is rejected."""
    notes = cells(rows, _NOTE_CELLS, integers=INTEGERS)
    notes = notes.with_columns(_times(notes).alias(TIME))
    stays = stays_of(notes, lookups)
    people = answers(notes["subject_id"], lookups[PATIENTS])
    years = mapped(notes["charttime"], year_of)
    found = notes.select(
        stays["department"],
        pl.col("subject_id").alias("patient"),
        stays["encounter"],
        timestamps(notes[TIME]),
        mapped(_ages(people, years), age_band_of).alias("age_band"),
        stays["diagnosis_chapter"],
        "note_type",
        people["sex"],
        years.alias("year"),
    )
    flags = stays.select(*FLAGS, people[CONFLICT].alias(CONFLICTING_PATIENTS))
    return counted(to_roles(rows, found, ids="note_id", texts="text", rejected=Counter()), flags)


def _times(notes: pl.DataFrame) -> pl.Series:
    """Microseconds since 1970 UTC of each note; of one that has only a date, those of the day's end."""
    written, kinds = pl.col("charttime"), pl.col("note_type").str.to_uppercase()
    is_day = written.str.contains(_DAY) | (kinds.is_in(_DISCHARGES) & written.str.contains(_MIDNIGHT))
    ends, times = ends_of_days(notes["charttime"]), moments(notes["charttime"])
    return notes.select(pl.when(is_day).then(ends).otherwise(times)).to_series()


def _ages(people: pl.DataFrame, years: pl.Series) -> pl.Series:
    """Age in whole years as text: that of the anchor year and the years since.

    Before the anchor year, a pooled age tells nothing: who is 91 by name may have been 80.
    """
    numbers = people.select(
        pl.col("anchor_age").cast(pl.Int64, strict=False).alias("age"),
        since=years.cast(pl.Int64, strict=False) - pl.col("anchor_year").cast(pl.Int64, strict=False),
    )
    is_told = (pl.col("age") < POOLED_AGE) | (pl.col("since") >= 0)
    return numbers.select(pl.when(is_told).then(pl.col("age") + pl.col("since")).cast(pl.String)).to_series()


_PEOPLE = LookupKind(PATIENTS, (PATIENTS,), _person_rows, alone(completed_lookup))
# Patient is subject_id, encounter hadm_id, the record id note_id.
ADAPTER = TableFamily(
    name="mimic4",
    features=FEATURES,
    kinds=KINDS,
    lookup_plan=LookupPlan(_side_cells, (*stay_kinds(), _PEOPLE)),
    make_records=_records,
)
