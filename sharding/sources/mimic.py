"""What both editions of MIMIC share: the service that a patient was under, the unit they lay in, the first diagnosis.

A service is known from its transfer until the next one, also after discharge, since summaries are dictated later. A
unit is known only while the patient lies there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

import polars as pl
import pyarrow as pa

from sharding.diagnoses import icd_chapter
from sharding.sources.cells import moments
from sharding.sources.joins import TIME, answers, latest, lookup
from sharding.sources.keyed import KEY

SERVICES, TRANSFERS, PATIENTS, DIAGNOSES = "services", "transfers", "patients", "diagnoses_icd"
# Lookups that are not named after their table: units by hospital stay and by patient, chapters by hospital stay.
UNITS, PATIENT_UNITS, CHAPTERS = "units", "patient_units", "chapters"
FEATURES = ("age_band", "diagnosis_chapter", "note_type", "sex", "year")

_STILL_THERE = 2**63 - 1
_FIRST_DIAGNOSIS = 1
# Key, beginning, unit and end, both in microseconds and inclusive.
Stay = tuple[str, int, str | None, int]


def service_lookup(services: pl.DataFrame) -> pa.Table:
    """Services by hospital stay and time.

    Args:
        services: ``hadm_id``, ``transfertime``, ``curr_service``. Of several services from one moment on, the one that
            sorts first is taken; a row without a service or a time says nothing.
    """
    named = services.drop_nulls("curr_service")
    times = moments(named["transfertime"])
    return lookup(named.select(pl.col("hadm_id").alias(KEY), times.alias(TIME), unit="curr_service"), (KEY, TIME))


def unit_lookups(transfers: pl.DataFrame) -> dict[str, pa.Table]:
    """Units by hospital stay and time, and by patient and time.

    Args:
        transfers: ``subject_id``, ``hadm_id``, ``eventtype``, ``careunit``, ``intime``, ``outtime``. Of several stays
            from one moment on, the longest is taken, then the one whose unit sorts first. A stay within another one
            interrupts it. Without an end, a stay goes on; with an end that is no date, or before its beginning, it says
            nothing. A discharge is no stay.
    """
    times = {TIME: moments(transfers["intime"]), "stop": moments(transfers["outtime"])}
    stays = transfers.with_columns(**times)
    has_end, is_discharge = pl.col("outtime").is_not_null(), pl.col("eventtype").str.to_lowercase() == "discharge"
    sound = stays.filter(~is_discharge.fill_null(False) & ~(has_end & pl.col("stop").is_null()))
    named = sound.with_columns(
        pl.col("stop").fill_null(_STILL_THERE),
        # MIMIC-IV writes so where nobody knows.
        unit=pl.when(pl.col("careunit").str.to_lowercase() != "unknown").then("careunit"),
    )
    return {UNITS: _by_key(named, "hadm_id"), PATIENT_UNITS: _by_key(named, "subject_id")}


def chapter_lookup(diagnoses: pl.DataFrame) -> pa.Table:
    """The chapter of the first diagnosis by hospital stay.

    Args:
        diagnoses: ``hadm_id``, ``seq_num``, ``icd_code``, ``icd_version``. Of several that are called the first, the
            one whose chapter sorts first is taken.
    """
    first = diagnoses.filter(pl.col("seq_num").cast(pl.Int64, strict=False) == _FIRST_DIAGNOSIS)
    codes = zip(first["icd_code"], first["icd_version"], strict=True)
    chapters = pl.Series([icd_chapter(code, version) for code, version in codes], dtype=pl.String)
    return lookup(first.select(pl.col("hadm_id").alias(KEY), chapters.alias("chapter")))


def departments(notes: pl.DataFrame, lookups: Mapping[str, pa.Table]) -> pl.Series:
    """The service that the patient was under at the note's time, else the unit where they lay, else null.

    Args:
        notes: ``hadm_id``, ``subject_id`` and ``time``. A note of no hospital stay is looked for among all units of its
            patient, as in an emergency department.
        lookups: Those of this module.
    """
    stays, times = notes["hadm_id"], notes[TIME]
    outside = notes.select(pl.when(pl.col("hadm_id").is_null()).then("subject_id")).to_series()
    return notes.select(
        pl.coalesce(
            latest(stays, times, lookups[SERVICES])["unit"],
            _unit_at(times, latest(stays, times, lookups[UNITS])),
            _unit_at(times, latest(outside, times, lookups[PATIENT_UNITS])),
        ).alias("department")
    ).to_series()


def chapters(notes: pl.DataFrame, lookups: Mapping[str, pa.Table]) -> pl.Series:
    """Chapter of the first diagnosis of each note's hospital stay."""
    return answers(notes["hadm_id"], lookups[CHAPTERS])["chapter"]


def _by_key(stays: pl.DataFrame, key: str) -> pa.Table:
    keyed = stays.select(pl.col(key).alias(KEY), TIME, "unit", "stop")
    sound = keyed.drop_nulls((KEY, TIME)).filter(pl.col("stop") >= pl.col(TIME))
    order = sound.sort(KEY, TIME, "stop", "unit", descending=[False, False, True, False], nulls_last=True)
    single = order.unique((KEY, TIME), keep="first", maintain_order=True)
    inner = single.filter(pl.col("stop") < pl.col("stop").cum_max().over(KEY))
    nested = single.join(inner.select(KEY).unique(), on=KEY, how="semi", maintain_order="left")
    resumed = [row for _, rows in groupby(nested.iter_rows(), key=itemgetter(0)) for row in _resumed(rows)]
    return lookup(pl.concat([single, pl.DataFrame(resumed, single.schema, orient="row")]), (KEY, TIME))


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
                key, _, unit, stop = around[-1]
                yield key, goes_on, unit, stop
        around += [stay] if stay else []


def _unit_at(times: pl.Series, stays: pl.DataFrame) -> pl.Series:
    """The stays' units where the time is not after their end."""
    return stays.select(pl.when(times <= pl.col("stop")).then("unit")).to_series()
