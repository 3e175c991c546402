"""NOTEEVENTS rows become records; what is marked as an error is rejected, and what is not known is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.sources import mimic3
from tests.exports import MIMIC3, adapt, rows_of

NOTE = {
    "ROW_ID": "00174",
    "SUBJECT_ID": "22532",
    "HADM_ID": "167853",
    "CHARTDATE": "2151-08-04",
    "CATEGORY": "Physician ",
    "DESCRIPTION": "Report",
    "TEXT": "Admission Date:  [**2151-7-16**]\n\n made ",
}
SERVICES = [
    {"HADM_ID": "167853", "TRANSFERTIME": "2151-08-04 09:00:00", "CURR_SERVICE": "MED"},
    {"HADM_ID": "167853", "TRANSFERTIME": "2151-08-04 18:00:00", "CURR_SERVICE": "CSURG"},
    {"HADM_ID": "167853", "TRANSFERTIME": "2151-08-05 00:00:00", "CURR_SERVICE": "NMED"},
]


def note(**changes: str | None) -> dict[str, str | None]:
    """A note with other cells."""
    return {**NOTE, **changes}


def test_a_note_becomes_a_record() -> None:
    """Every role from its public column, the text byte for byte."""
    export = {
        "NOTEEVENTS": [NOTE],
        "PATIENTS": [{"SUBJECT_ID": "22532", "GENDER": "M", "DOB": "2087-08-05 00:00:00"}],
        "SERVICES": SERVICES,
        "DIAGNOSES_ICD": [{"HADM_ID": "167853", "SEQ_NUM": "1", "ICD9_CODE": "01193"}],
        "PROCEDURES_ICD": [{"HADM_ID": "167853", "SEQ_NUM": "1", "ICD9_CODE": "3323"}],
    }

    found = adapt(mimic3.ADAPTER, MIMIC3, export)

    assert rows_of(found) == [
        {
            "id": "00174",
            "text": NOTE["TEXT"],
            "department": "CSURG",
            "patient": "22532",
            "encounter": "167853",
            "time": "2151-08-04T23:59:59.999999",
            "feature.age_band": "60-69",
            "feature.diagnosis_chapter": "icd09-01",
            "feature.note_type": "Physician",
            "feature.sex": "male",
            "feature.year": "2151",
        }
    ]
    assert not found.unresolved
    assert not found.rejected


@pytest.mark.parametrize("mark", ["1", "1.0", " 1 "])
def test_what_is_marked_as_an_error_is_rejected(mark: str) -> None:
    """With its reason, and the others keep their order."""
    notes = [note(ROW_ID="1"), note(ROW_ID="2", ISERROR=mark), note(ROW_ID="3"), note(ROW_ID="4", ISERROR=mark)]

    found = adapt(mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": notes})

    assert [row["id"] for row in rows_of(found)] == ["1", "3"]
    assert found.rejected == {"marked_error": 2}
    assert found.unresolved["department"] == 2


@given(st.lists(st.sampled_from([None, "", "0", "1", "2", "x", "11"]), min_size=1))
def test_no_note_is_lost(marks: list[str | None]) -> None:
    """Records and rejects together are the rows, and only a one is a mark."""
    found = adapt(mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": [note(ISERROR=mark) for mark in marks]})

    assert found.rejected["marked_error"] == marks.count("1")
    assert found.table.num_rows + found.rejected.total() == len(marks)


@pytest.mark.parametrize(
    ("charttime", "chartdate", "department"),
    [
        (None, "2151-08-04", "CSURG"),
        (None, "2151-08-04 00:00:00", "CSURG"),
        ("2151-08-04 17:59:59", "2151-08-04", "MED"),
        ("2151-08-04 18:00:00", "2151-08-04", "CSURG"),
        ("2151-08-04 08:59:59", "2151-08-04", "UNKNOWN"),
        ("noon", "2151-08-04", "CSURG"),
        (None, "2151-08-05", "NMED"),
        (None, None, "UNKNOWN"),
    ],
)
def test_a_note_without_a_time_is_of_the_end_of_its_day(
    charttime: str | None, chartdate: str | None, department: str
) -> None:
    """A service of midnight is of the next day; with a time, the time counts."""
    notes = [note(CHARTTIME=charttime, CHARTDATE=chartdate)]

    found = adapt(mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": notes, "SERVICES": SERVICES})

    assert rows_of(found)[0]["department"] == department


def test_rows_of_a_patient_that_complete_each_other_are_one() -> None:
    """PATIENTS in two parts, each with a column that the other lacks; neither answer is lost, and none is doubted."""
    patient = {"GENDER": "M", "DOB": "2087-08-05 00:00:00"}
    parts = [{"SUBJECT_ID": "22532", name: cell} for name, cell in patient.items()]

    found = adapt(mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": [NOTE], "PATIENTS": parts})

    assert found == adapt(
        mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": [NOTE], "PATIENTS": [{"SUBJECT_ID": "22532", **patient}]}
    )
    assert not {"age_band", "sex", "conflicting_patients"} & found.unresolved.keys()


def test_a_note_in_an_intensive_care_unit_is_of_it_without_a_service() -> None:
    """Wards have no care unit in TRANSFERS, so a note there has no department."""
    stays = [
        {"INTIME": "2151-08-04 01:00:00", "OUTTIME": "2151-08-04 05:00:00", "CURR_CAREUNIT": "MICU"},
        {"INTIME": "2151-08-04 05:00:00", "OUTTIME": "2151-08-06 05:00:00", "CURR_WARDID": "45"},
        {"INTIME": "2151-08-06 05:00:00", "EVENTTYPE": "discharge", "PREV_WARDID": "45"},
    ]
    transfers = [{"SUBJECT_ID": "22532", "HADM_ID": "167853", **stay} for stay in stays]
    notes = [note(CHARTTIME=f"2151-08-04 {time}:00") for time in ("04:59", "05:00")]

    found = adapt(mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": notes, "TRANSFERS": transfers})

    assert [row["department"] for row in rows_of(found)] == ["MICU", "UNKNOWN"]


@pytest.mark.parametrize(
    ("birth", "band"),
    [
        ("2151-08-04 00:00:00", "00-09"),
        ("2061-08-05 00:00:00", "80-89"),
        ("2061-08-04 00:00:00", "90+"),
        ("1851-08-04 00:00:00", "90+"),
        ("2151-08-05 00:00:00", None),
        ("unknown", None),
        (None, None),
    ],
)
def test_ages_count_from_birth_and_the_old_are_pooled(birth: str | None, band: str | None) -> None:
    """Births of patients over 89 lie 300 years back."""
    patients = [{"SUBJECT_ID": "22532", "GENDER": "F", "DOB": birth}]

    found = adapt(mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": [NOTE], "PATIENTS": patients})

    assert rows_of(found)[0]["feature.age_band"] == band
    assert found.unresolved["age_band"] == (band is None)


def test_ids_that_were_saved_as_floats_join() -> None:
    """Patients and stays do; a record's own id and a diagnosis that begins with 0 stay as they are."""
    ids = {"SUBJECT_ID": "22532.0", "HADM_ID": "167853.0"}
    export = {
        "NOTEEVENTS": [note(**ids)],
        "SERVICES": SERVICES,
        "DIAGNOSES_ICD": [{"SUBJECT_ID": "022532", "HADM_ID": "167853", "SEQ_NUM": "1.0", "ICD9_CODE": "0389"}],
        "PATIENTS": [{"SUBJECT_ID": "22532.00", "GENDER": "M", "DOB": "2087-08-05 00:00:00"}],
    }

    found = adapt(mimic3.ADAPTER, MIMIC3, export)

    (row,) = rows_of(found)
    assert (row["id"], row["patient"], row["encounter"]) == ("00174", "22532", "167853")
    assert (row["department"], row["feature.diagnosis_chapter"]) == ("CSURG", "icd09-01")
    assert not found.unresolved


def test_notes_alone_are_records_too() -> None:
    """Without side tables all that they would say is unknown, and counted."""
    found = adapt(mimic3.ADAPTER, MIMIC3, {"NOTEEVENTS": [NOTE]})

    assert rows_of(found)[0]["department"] == "UNKNOWN"
    assert found.unresolved == {"department": 1, "age_band": 1, "diagnosis_chapter": 1, "sex": 1}
