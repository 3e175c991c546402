"""MIMIC-IV-Note rows become records with patients, encounters and features, and gaps are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.features import age_band
from sharding.sources import mimic4
from tests.exports import MIMIC4, Export, adapt, rows_of

NOTE = {
    "note_id": "10000032-RR-14",
    "subject_id": "10000032",
    "hadm_id": "22595853",
    "note_type": "RR",
    "note_seq": "14",
    "charttime": "2180-05-06 21:19:00",
    "storetime": "2180-05-06 23:32:00",
    "text": 'EXAMINATION:  CHEST\n"made" , \r\n ',
}
PATIENT = {"subject_id": "10000032", "gender": "F", "anchor_age": "52", "anchor_year": "2180", "dod": "2180-09-09"}


def band_of(anchor_age: str | None, anchor_year: str | None, year: int) -> str | None:
    """The age band of a note of some year."""
    patient = {**PATIENT, "anchor_age": anchor_age, "anchor_year": anchor_year}
    note = {**NOTE, "charttime": f"{year}-01-01 00:00:00"}
    band: str | None = rows_of(adapt(mimic4.ADAPTER, MIMIC4, {"radiology": [note], "patients": [patient]}))[0][
        "feature.age_band"
    ]
    return band


def test_a_note_becomes_a_record() -> None:
    """Every role from its public column, the text byte for byte."""
    export: Export = {
        "radiology": [NOTE],
        "patients": [PATIENT],
        "services": [
            {"hadm_id": "22595853", "transfertime": "2180-05-06 22:24:57", "curr_service": "MED"},
            {"hadm_id": "22595853", "transfertime": "2180-05-06 21:19:00", "curr_service": "OMED"},
        ],
        "diagnoses_icd": [
            {"hadm_id": "22595853", "seq_num": "1", "icd_code": "5723", "icd_version": "9"},
            {"hadm_id": "22595853", "seq_num": "2", "icd_code": "78959", "icd_version": "9"},
        ],
    }

    found = adapt(mimic4.ADAPTER, MIMIC4, export)

    assert rows_of(found) == [
        {
            "id": "10000032-RR-14",
            "text": NOTE["text"],
            "department": "OMED",
            "patient": "10000032",
            "encounter": "22595853",
            "time": "2180-05-06T21:19:00.000000",
            "feature.age_band": "50-59",
            "feature.diagnosis_chapter": "icd09-09",
            "feature.note_type": "RR",
            "feature.sex": "female",
            "feature.year": "2180",
        }
    ]
    assert not found.unresolved
    assert not found.rejected


def test_notes_alone_are_records_too() -> None:
    """Without side tables all that they would say is unknown, and counted."""
    found = adapt(mimic4.ADAPTER, MIMIC4, {"radiology": [NOTE, {**NOTE, "hadm_id": None, "subject_id": None}]})

    assert [row["department"] for row in rows_of(found)] == ["UNKNOWN", "UNKNOWN"]
    assert found.unresolved == {"department": 2, "age_band": 2, "diagnosis_chapter": 2, "sex": 2, "patient": 1}


@pytest.mark.parametrize(
    ("kind", "charttime", "department", "time"),
    [
        ("DS", "2180-05-06 00:00:00", "SURG", "2180-05-06T23:59:59.999999"),
        ("AD", "2180-05-06T00:00", "SURG", "2180-05-06T23:59:59.999999"),
        ("DS", "2180-05-06 00:00:01", "MED", "2180-05-06T00:00:01.000000"),
        ("RR", "2180-05-06 00:00:00", "MED", "2180-05-06T00:00:00.000000"),
        ("RR", "2180-05-06", "SURG", "2180-05-06T23:59:59.999999"),
    ],
)
def test_a_discharge_note_at_midnight_is_of_the_end_of_its_day(
    kind: str, charttime: str, department: str, time: str
) -> None:
    """Its charttime is a date; that of a radiology report has a time, unless it is a date to the letter."""
    services = [
        {"hadm_id": NOTE["hadm_id"], "transfertime": moment, "curr_service": name}
        for moment, name in (("2180-05-05 10:00:00", "MED"), ("2180-05-06 14:00:00", "SURG"))
    ]
    note = {**NOTE, "note_type": kind, "charttime": charttime}

    (row,) = rows_of(adapt(mimic4.ADAPTER, MIMIC4, {"radiology": [note], "services": services}))

    assert (row["department"], row["time"]) == (department, time)
    assert row["feature.year"] == "2180"


@given(st.integers(0, 89), st.integers(2110, 2200), st.integers(2105, 2209))
def test_an_age_counts_from_the_anchor_year(anchor_age: int, anchor_year: int, year: int) -> None:
    """Forward and back; before birth there is none."""
    assert band_of(str(anchor_age), str(anchor_year), year) == age_band(anchor_age + year - anchor_year)


@pytest.mark.parametrize(("year", "band"), [(2179, None), (2170, None), (2180, "90+"), (2190, "90+")])
def test_a_pooled_age_tells_nothing_of_earlier_years(year: int, band: str | None) -> None:
    """91 stands for any age over 89: ten years before, its owner may have been 80 or 95."""
    assert band_of("91", "2180", year) == band


@pytest.mark.parametrize(("age", "year"), [(None, "2180"), ("52", None), ("x", "2180"), ("52", "x"), ("5.2", "2180")])
def test_an_anchor_that_is_no_number_gives_no_age(age: str | None, year: str | None) -> None:
    """It is counted, not guessed."""
    assert band_of(age, year, 2180) is None


def test_a_patient_with_two_rows_is_the_same_in_any_order() -> None:
    """The row that sorts first by anchor year, age and sex counts, null last."""
    rows: list[dict[str, str | None]] = [
        {**PATIENT, "anchor_age": None},
        {**PATIENT, "anchor_age": "61"},
        {**PATIENT, "anchor_age": "52"},
    ]

    bands = [
        rows_of(adapt(mimic4.ADAPTER, MIMIC4, {"radiology": [NOTE], "patients": order}))[0]["feature.age_band"]
        for order in (rows, rows[::-1])
    ]

    assert bands == ["50-59", "50-59"]
