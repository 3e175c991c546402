"""What both editions of MIMIC share: the service that a patient was under, the unit they lay in, the first diagnosis.

All of it is known of a hospital stay and its own patient. A service is known from its transfer until the next one, also
after discharge, since summaries are dictated later. A unit is known only while the patient lies there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter

import polars as pl
import pyarrow as pa

from sharding.diagnoses import icd_chapter
from sharding.sources.adapter import CONFLICTING, ENCOUNTER_OF_OTHER_PATIENT
from sharding.sources.cells import moments
from sharding.sources.joins import CONFLICT, TIME, answers, any_set, first_told, latest, lookup
from sharding.sources.keyed import KEY
from sharding.sources.lookup_plans import LookupKind, alone
from sharding.sources.owners import IS_FOREIGN, KEYS, OWNERS, keys_of, owner_rows, owner_table, stay_key

SERVICES, TRANSFERS, PATIENTS, DIAGNOSES = "services", "transfers", "patients", "diagnoses_icd"
# Lookups that are not named after their table: units by hospital stay and by patient, chapters by hospital stay.
# Whatever goes by hospital stay goes by the stay and its patient.
UNITS, PATIENT_UNITS, CHAPTERS = "units", "patient_units", "chapters"
# By the public schemas of both editions.
INTEGERS = ("subject_id", "hadm_id", "seq_num", "icd_version", "anchor_age", "anchor_year")
FEATURES = ("age_band", "diagnosis_chapter", "note_type", "sex", "year")
CONFLICTING_SERVICES, CONFLICTING_TRANSFERS = CONFLICTING + SERVICES, CONFLICTING + TRANSFERS
CONFLICTING_DIAGNOSES, CONFLICTING_PATIENTS = CONFLICTING + DIAGNOSES, CONFLICTING + PATIENTS
FLAGS = (ENCOUNTER_OF_OTHER_PATIENT, CONFLICTING_SERVICES, CONFLICTING_TRANSFERS, CONFLICTING_DIAGNOSES)

_STILL_THERE = 2**63 - 1
_FIRST_DIAGNOSIS = 1
_STAY, _PATIENT = "hadm_id", "subject_id"
# Key, beginning, unit, end, and the end of the last stay that began together with it in another unit; times are
# microseconds, and inclusive.
Stay = tuple[str, int, str | None, int, int | None]
_CONTESTED = "contested_until"


def stay_kinds() -> tuple[LookupKind, ...]:
    """All that is known of hospital stays, and whose each of them is; see the functions below."""
    stay, patient = stay_key(_STAY, _PATIENT), pl.col(_PATIENT)
    owners = partial(owner_rows, stay=_STAY, patient=_PATIENT)
    return (
        LookupKind(SERVICES, (SERVICES,), service_rows, alone(partial(lookup, unique=(KEY, TIME)))),
        LookupKind(UNITS, (TRANSFERS,), partial(unit_rows, key=stay), alone(unit_table)),
        LookupKind(PATIENT_UNITS, (TRANSFERS,), partial(unit_rows, key=patient), alone(unit_table)),
        LookupKind(CHAPTERS, (DIAGNOSES,), chapter_rows, alone(lookup)),
        LookupKind(OWNERS, (SERVICES, TRANSFERS, DIAGNOSES), owners, alone(owner_table)),
    )


def timed(use: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The cells of a side table, with the times of services and units in microseconds."""
    if use == SERVICES:
        return rows.with_columns(moments(rows["transfertime"]).alias(TIME))
    if use == TRANSFERS:
        return rows.with_columns(moments(rows["intime"]).alias(TIME), moments(rows["outtime"]).alias("stop"))
    return rows


def service_rows(services: pl.DataFrame) -> pl.DataFrame:
    """Services by hospital stay and time.

    Args:
        services: ``subject_id``, ``hadm_id``, ``time``, ``curr_service``. Of several services from one moment on, the
            one that sorts first is taken; a row without a service or a time says nothing.
    """
    named = services.drop_nulls("curr_service")
    return named.select(stay_key(_STAY, _PATIENT).alias(KEY), TIME, unit="curr_service").drop_nulls((KEY, TIME))


def unit_rows(transfers: pl.DataFrame, key: pl.Expr) -> pl.DataFrame:
    """Stays in units by a key and time.

    Args:
        transfers: ``subject_id``, ``hadm_id``, ``eventtype``, ``careunit``, ``outtime``, ``time``, ``stop``. Without an
            end, a stay goes on; with an end that is no date, or before its beginning, it says nothing. A discharge is
            no stay.
        key: Of the patient, or of the hospital stay and its patient.
    """
    has_end, is_discharge = pl.col("outtime").is_not_null(), pl.col("eventtype").str.to_lowercase() == "discharge"
    sound = transfers.filter(~is_discharge.fill_null(False) & ~(has_end & pl.col("stop").is_null()))
    # MIMIC-IV writes so where nobody knows.
    unit = pl.when(pl.col("careunit").str.to_lowercase() != "unknown").then("careunit").alias("unit")
    keyed = sound.select(key.alias(KEY), TIME, unit, pl.col("stop").fill_null(_STILL_THERE))
    return keyed.drop_nulls((KEY, TIME)).filter(pl.col("stop") >= pl.col(TIME))


def unit_table(stays: pl.DataFrame) -> pa.Table:
    """Units by key and time.

    Of several stays from one moment on, one in a named unit is taken, then the longest, then the one whose unit sorts
    first; while another one lasts that names another unit, the two contradict each other. A stay within another one
    interrupts it.
    """
    is_named = pl.col("unit").is_not_null()
    order = stays.sort(KEY, TIME, ~is_named, "stop", "unit", descending=[False, False, False, True, False])
    is_other = is_named & pl.col("unit").ne_missing(pl.col("unit").first())
    contested = pl.col("stop").filter(is_other).max().over(KEY, TIME).alias(_CONTESTED)
    single = order.with_columns(contested).unique((KEY, TIME), keep="first", maintain_order=True)
    # The patient is in the nameless one from then on.
    outlasts = pl.col("stop") > pl.col("stop").filter(is_named).max().over(KEY, TIME)
    around = order.filter(~is_named & outlasts).with_columns(pl.lit(None, pl.Int64).alias(_CONTESTED))
    stacked = pl.concat([around, single]).sort(KEY, TIME, "stop", descending=[False, False, True])
    inner = stacked.filter(pl.col("stop") < pl.col("stop").cum_max().over(KEY))
    nested = stacked.join(inner.select(KEY).unique(), on=KEY, how="semi", maintain_order="left")
    resumed = [row for _, rows in groupby(nested.iter_rows(), key=itemgetter(0)) for row in _resumed(rows)]
    return lookup(pl.concat([single, pl.DataFrame(resumed, single.schema, orient="row")]), (KEY, TIME))


def chapter_rows(diagnoses: pl.DataFrame) -> pl.DataFrame:
    """The chapter of the first diagnosis by hospital stay.

    Args:
        diagnoses: ``subject_id``, ``hadm_id``, ``seq_num``, ``icd_code``, ``icd_version``. Of several that are called
            the first, the one whose chapter sorts first is taken; a code of no chapter says nothing.
    """
    first = diagnoses.filter(pl.col("seq_num").cast(pl.Int64, strict=False) == _FIRST_DIAGNOSIS)
    codes = zip(first["icd_code"], first["icd_version"], strict=True)
    chapters = pl.Series([icd_chapter(code, version) for code, version in codes], dtype=pl.String)
    return first.select(stay_key(_STAY, _PATIENT).alias(KEY), chapters.alias("chapter")).drop_nulls()


def stays_of(notes: pl.DataFrame, lookups: Mapping[str, pa.Table]) -> pl.DataFrame:
    """What is known of each note from its hospital stay, in the notes' order.

    Args:
        notes: ``hadm_id``, ``subject_id`` and ``time``. A note of no hospital stay is looked for among all units of its
            patient, as in an emergency department.
        lookups: Those of this module.

    Returns:
        ``department``, the service that the patient was under at the note's time, else the unit where they lay;
        ``encounter``; ``diagnosis_chapter``; all null where nothing is known. A boolean column for each of ``FLAGS``.
    """
    keys, times = keys_of(notes, lookups[OWNERS], stay=_STAY, patient=_PATIENT), notes[TIME]
    outside = notes.select(pl.when(pl.col(_STAY).is_null()).then(_PATIENT)).to_series()
    services = [latest(keys[name], times, lookups[SERVICES]) for name in KEYS]
    stays = [latest(keys[name], times, lookups[UNITS]) for name in KEYS]
    units = [_at(times, told) for told in (*stays, latest(outside, times, lookups[PATIENT_UNITS]))]
    department, places = first_told([*services, *units], "unit")
    chapter, chapters = first_told([answers(keys[name], lookups[CHAPTERS]) for name in KEYS], "chapter")
    return notes.select(
        department.alias("department"),
        pl.when(~keys[IS_FOREIGN]).then(_STAY).alias("encounter"),
        chapter.alias("diagnosis_chapter"),
        keys[IS_FOREIGN].alias(ENCOUNTER_OF_OTHER_PATIENT),
        any_set(places[: len(services)], CONFLICT).alias(CONFLICTING_SERVICES),
        any_set(places[len(services) :], CONFLICT).alias(CONFLICTING_TRANSFERS),
        any_set(chapters, CONFLICT).alias(CONFLICTING_DIAGNOSES),
    )


def _resumed(stays: Iterable[Stay]) -> Iterator[Stay]:
    """What goes on of the stays of one key, by ascending beginning, after stays within them have ended."""
    around: list[Stay] = []
    for stay in [*stays, None]:
        begins = _STILL_THERE if stay is None else stay[1]
        while around and around[-1][3] < begins:
            goes_on = around.pop()[3] + 1
            while around and around[-1][3] < goes_on:
                around.pop()
            if around and goes_on < begins:
                key, _, unit, stop, contested = around[-1]
                yield key, goes_on, unit, stop, contested
        around += [stay] if stay else []


def _at(times: pl.Series, stays: pl.DataFrame) -> pl.DataFrame:
    """The stays' units where the time is not after their end, and whether another one lasts that began with it."""
    return stays.select(
        pl.when(times <= pl.col("stop")).then("unit").alias("unit"), (times <= pl.col(_CONTESTED)).alias(CONFLICT)
    )
