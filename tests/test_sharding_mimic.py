"""A MIMIC note's department is the service of its time, else the unit of its time, whatever the order of the rows."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharding.sources import mimic4
from tests.exports import MIMIC4, Export, adapt, rows_of

# Never midnight, at which a discharge note is of its whole day.
START = datetime(2150, 1, 1, 1)
Cells = Mapping[str, str | None]


def clock(hours: int | None) -> str | None:
    """A time as MIMIC writes it."""
    return None if hours is None else str(START + timedelta(hours=hours))


def note(hours: int | None = 0, *, stay: str | None = "20", number: int = 1, patient: str = "10") -> Cells:
    """A discharge note."""
    return {
        "note_id": f"{patient}-DS-{number}",
        "subject_id": patient,
        "hadm_id": stay,
        "note_type": "DS",
        "charttime": clock(hours),
        "text": f"note {number}",
    }


def service(hours: int | None, name: str | None, stay: str = "20", patient: str | None = "10") -> Cells:
    """A service from some hour on."""
    return {"subject_id": patient, "hadm_id": stay, "transfertime": clock(hours), "curr_service": name}


def unit(start: int | None, stop: int | None, name: str | None, **changes: str | None) -> Cells:
    """A stay in a unit."""
    times = {"intime": clock(start), "outtime": clock(stop)}
    return {"subject_id": "10", "hadm_id": "20", "eventtype": "transfer", "careunit": name, **times, **changes}


def diagnosis(code: str, *, stay: str = "20", number: str = "1", patient: str | None = "10") -> Cells:
    """A code of ICD-10."""
    return {"subject_id": patient, "hadm_id": stay, "seq_num": number, "icd_code": code, "icd_version": "10"}


def departments_of(export: Export) -> list[str]:
    """Of the notes in their order."""
    return [row["department"] for row in rows_of(adapt(mimic4.ADAPTER, MIMIC4, export))]


HOURS = st.one_of(st.none(), st.integers(0, 6))
STAYS = st.sampled_from(["20", "21", "020"])
NOTES = st.lists(
    st.builds(note, HOURS, stay=st.one_of(st.none(), STAYS), number=st.integers(0, 99), patient=st.sampled_from("123")),
    min_size=1,
    max_size=8,
)
OWNERS = st.sampled_from([None, "1", "2", "3"])
SERVICES = st.lists(
    st.builds(service, HOURS, st.sampled_from([None, "MED", "CMED", "SURG"]), STAYS, OWNERS), max_size=8
)
UNITS = st.lists(
    st.builds(unit, HOURS, HOURS, st.sampled_from([None, "MICU", "Ward"]), hadm_id=STAYS, subject_id=OWNERS), max_size=8
)
DIAGNOSES = st.lists(
    st.builds(
        diagnosis,
        st.sampled_from(["I10", "A419", "x"]),
        stay=STAYS,
        number=st.sampled_from(["1", "2"]),
        patient=OWNERS,
    ),
    max_size=6,
)
PATIENTS = st.lists(
    st.builds(
        lambda patient, sex, age: {"subject_id": patient, "gender": sex, "anchor_age": age, "anchor_year": "2149"},
        st.sampled_from("123"),
        st.sampled_from([None, "M", "F"]),
        st.sampled_from([None, "0", "52", "91"]),
    ),
    max_size=4,
)
EXPORTS = st.fixed_dictionaries(
    {"discharge": NOTES, "services": SERVICES, "transfers": UNITS, "diagnoses_icd": DIAGNOSES, "patients": PATIENTS}
)


@given(EXPORTS, st.randoms())
def test_shuffled_side_tables_give_equal_records(export: dict[str, list[Cells]], chance: random.Random) -> None:
    """Also with repeated rows that contradict each other."""
    shuffled = {name: chance.sample(rows, len(rows)) for name, rows in export.items()}

    found = adapt(mimic4.ADAPTER, MIMIC4, {**shuffled, "discharge": export["discharge"]})

    assert found == adapt(mimic4.ADAPTER, MIMIC4, export)


@given(EXPORTS, st.randoms())
def test_permuted_notes_give_permuted_records(export: dict[str, list[Cells]], chance: random.Random) -> None:
    """A record depends on its own row only."""
    order = chance.sample(range(len(export["discharge"])), len(export["discharge"]))
    permuted = {**export, "discharge": [export["discharge"][index] for index in order]}

    found = rows_of(adapt(mimic4.ADAPTER, MIMIC4, permuted))

    calm = rows_of(adapt(mimic4.ADAPTER, MIMIC4, export))
    assert found == [calm[index] for index in order]


@given(EXPORTS)
def test_every_gap_is_counted(export: dict[str, list[Cells]]) -> None:
    """Unresolved counts are exactly the gaps of the table; no note is lost, and its stay only if it is another's."""
    found = adapt(mimic4.ADAPTER, MIMIC4, export)

    table, rows = found.table, rows_of(found)
    gaps = {name.removeprefix("feature."): table.column(name).null_count for name in table.column_names}
    # A note without a time has no year, which is counted.
    gaps |= {"time": 0, "department": sum(row["department"] == "UNKNOWN" for row in rows), "encounter": 0}
    gaps["encounter_of_other_patient"] = table.column("encounter").null_count - sum(
        note["hadm_id"] is None for note in export["discharge"]
    )
    assert [row["id"] for row in rows] == [row["note_id"] for row in export["discharge"]]
    counted = {name: count for name, count in found.unresolved.items() if not name.startswith("conflicting_")}
    assert counted == {name: count for name, count in gaps.items() if count}


@pytest.mark.parametrize("table", ["services", "transfers", "diagnoses_icd"])
def test_a_stay_of_another_patient_says_nothing(table: str) -> None:
    """If any side table says so, none is asked; the record has no encounter and is counted."""
    sides: dict[str, list[Cells]] = {
        "services": [service(0, "MED", patient=None)],
        "transfers": [unit(0, 9, "MICU", subject_id=None)],
        "diagnoses_icd": [diagnosis("I10", patient=None)],
    }
    others: Export = {**sides, table: [{**row, "subject_id": "11"} for row in sides[table]]}

    found = adapt(mimic4.ADAPTER, MIMIC4, {"discharge": [note(1)], **others})

    (row,) = rows_of(found)
    assert (row["department"], row["encounter"], row["feature.diagnosis_chapter"]) == ("UNKNOWN", None, None)
    assert row["patient"] == "10"
    assert found.unresolved["encounter_of_other_patient"] == 1


@settings(max_examples=30)
@given(EXPORTS)
def test_rows_of_other_patients_change_no_record(export: dict[str, list[Cells]]) -> None:
    """A stay that is given to several patients is to each note what the rows of its own patient say."""
    calm: dict[str, list[Cells]] = {
        **export,
        "discharge": [{**row, "subject_id": "1"} for row in export["discharge"]],
        "services": [*export["services"], *(service(3, "OWN", stay, "1") for stay in ("20", "21", "020"))],
    }
    tables = ("services", "transfers", "diagnoses_icd")
    others: Export = {name: [{**row, "subject_id": "2"} for row in calm[name]] for name in tables}

    found = adapt(mimic4.ADAPTER, MIMIC4, {**calm, **{name: [*calm[name], *others[name]] for name in tables}})

    assert found == adapt(mimic4.ADAPTER, MIMIC4, calm)


@settings(max_examples=30)
@given(EXPORTS)
def test_rows_that_name_nobody_speak_of_whoever_was_there(export: dict[str, list[Cells]]) -> None:
    """A table without the patients says the same as one in which every row is of the notes' patient."""
    notes = [{**row, "subject_id": "1"} for row in export["discharge"] if row["hadm_id"]] or [note(1, patient="1")]
    tables = ("services", "transfers", "diagnoses_icd")
    own, nameless = (
        {
            **export,
            "discharge": notes,
            **{name: [{**row, "subject_id": who} for row in export[name]] for name in tables},
        }
        for who in ("1", None)
    )

    found = adapt(mimic4.ADAPTER, MIMIC4, nameless)

    assert found == adapt(mimic4.ADAPTER, MIMIC4, own)


def conflicts_of(export: Export) -> set[str]:
    """Names of the tables that a record relied on though they contradict themselves."""
    counts = adapt(mimic4.ADAPTER, MIMIC4, export).unresolved
    assert all(count == 1 for name, count in counts.items() if name.startswith("conflicting_"))
    return {name.removeprefix("conflicting_") for name in counts if name.startswith("conflicting_")}


@pytest.mark.parametrize(
    ("table", "one", "other"),
    [
        ("services", service(1, "MED"), service(1, "SURG")),
        ("transfers", unit(1, 5, "MICU"), unit(1, 5, "Ward")),
        ("transfers", unit(1, 5, "MICU"), unit(1, 2, "Ward")),
        ("diagnoses_icd", diagnosis("I10"), diagnosis("A419")),
        ("patients", {"subject_id": "10", "gender": "F"}, {"subject_id": "10", "gender": "M"}),
        ("patients", {"subject_id": "10", "anchor_year": "2149"}, {"subject_id": "10", "anchor_year": "2150"}),
    ],
)
def test_a_record_that_relies_on_rows_that_contradict_each_other_is_counted(
    table: str, one: Cells, other: Cells
) -> None:
    """Once, whichever row is taken; two rows that are equal are one."""
    notes = [note(2)]

    found = conflicts_of({"discharge": notes, table: [one, other]})

    assert found == {table}
    assert (
        conflicts_of({"discharge": notes, table: [one, one]})
        == conflicts_of({"discharge": notes, table: [other]})
        == set()
    )


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("services", [service(3, "MED"), service(3, "SURG")]),
        ("services", [service(1, "MED"), service(1, "SURG"), service(2, "CMED")]),
        ("services", [service(1, "MED"), service(1, None), service(1, "SURG", "21")]),
        ("services", [service(1, "MED"), service(1, "SURG", patient="11")]),
        ("transfers", [unit(0, 1, "MICU"), unit(0, 1, "Ward")]),
        ("transfers", [unit(0, 9, "MICU"), unit(0, 1, "Ward")]),
        ("transfers", [unit(0, 9, "MICU"), unit(1, 9, "Ward")]),
        ("transfers", [unit(0, 9, "MICU"), unit(0, 9, None), unit(0, 9, "Unknown")]),
        ("transfers", [unit(1, 5, None), unit(1, 6, "Unknown"), unit(1, 2, "Ward")]),
        ("diagnoses_icd", [diagnosis("I10"), diagnosis("I110"), diagnosis("?"), diagnosis("A419", number="2")]),
        (
            "patients",
            [{"subject_id": "10", "gender": sex, "dod": day} for sex, day in (("F", "2150-01-09"), ("f", None))],
        ),
        ("patients", [{"subject_id": "10", "gender": "F"}, {"subject_id": "10", "gender": None}]),
        ("patients", [{"subject_id": "10", "gender": "F"}, {"subject_id": "10", "anchor_year": "2150"}]),
    ],
)
def test_rows_that_a_record_does_not_rely_on_contradict_nothing(table: str, rows: list[Cells]) -> None:
    """Those of another time, stay, patient or rank, cells that are not used, and rows that say nothing."""
    assert conflicts_of({"discharge": [note(2)], table: rows}) == set()


def test_units_that_nobody_asks_for_contradict_nothing() -> None:
    """Where the service tells the department."""
    units = [unit(1, 5, "MICU"), unit(1, 5, "Ward")]

    found = conflicts_of({"discharge": [note(2)], "services": [service(1, "MED")], "transfers": units})

    assert found == set()


def test_a_stay_that_goes_on_is_as_sure_as_before() -> None:
    """After the stay within it, as long as the one lasts that began with it."""
    stays = [unit(0, 9, "MICU"), unit(0, 6, "Ward"), unit(2, 4, "Endoscopy")]
    hours = (1, 3, 5, 7)

    found = [conflicts_of({"discharge": [note(hour)], "transfers": stays}) for hour in hours]

    assert found == [{"transfers"}, set(), {"transfers"}, set()]


@settings(max_examples=30)
@given(EXPORTS)
def test_repeated_rows_change_nothing(export: dict[str, list[Cells]]) -> None:
    """An equal row contradicts none."""
    twice = {name: rows if name == "discharge" else [*rows, *rows] for name, rows in export.items()}

    found = adapt(mimic4.ADAPTER, MIMIC4, twice)

    assert found == adapt(mimic4.ADAPTER, MIMIC4, export)


@pytest.mark.parametrize(("hours", "department"), [(4, "MED"), (5, "CMED"), (6, "CMED"), (999, "CMED")])
def test_the_latest_service_not_after_the_note_counts(hours: int, department: str) -> None:
    """A note exactly at the transfer is of the new service; the last service holds after discharge."""
    found = departments_of({"discharge": [note(hours)], "services": [service(5, "CMED"), service(0, "MED")]})

    assert found == [department]


def test_a_note_before_the_first_service_is_of_its_unit() -> None:
    """The emergency department, say."""
    export: Export = {
        "discharge": [note(1), note(2), note(3)],
        "services": [service(3, "MED")],
        "transfers": [unit(1, 2, "Emergency Department"), unit(2, 9, "MICU")],
    }

    assert departments_of(export) == ["Emergency Department", "MICU", "MED"]


@pytest.mark.parametrize(
    ("hours", "department"), [(0, "UNKNOWN"), (1, "MICU"), (3, "MICU"), (4, "UNKNOWN"), (5, "Ward")]
)
def test_a_unit_counts_while_the_patient_is_there(hours: int, department: str) -> None:
    """From its beginning to its end; a stay without an end goes on."""
    export: Export = {"discharge": [note(hours)], "transfers": [unit(1, 3, "MICU"), unit(5, None, "Ward")]}

    assert departments_of(export) == [department]


def test_a_stay_in_no_named_unit_ends_the_one_before() -> None:
    """Where one unit ends and a nameless one begins, the patient is in the nameless one."""
    export: Export = {"discharge": [note(2), note(3)], "transfers": [unit(1, 3, "MICU"), unit(3, 5, None)]}

    assert departments_of(export) == ["MICU", "UNKNOWN"]


@pytest.mark.parametrize("name", ["UNKNOWN", "Unknown", "  "])
def test_a_unit_that_nobody_knows_is_counted(name: str) -> None:
    """MIMIC-IV writes UNKNOWN."""
    found = adapt(mimic4.ADAPTER, MIMIC4, {"discharge": [note(2)], "transfers": [unit(1, 3, name)]})

    assert rows_of(found)[0]["department"] == "UNKNOWN"
    assert found.unresolved["department"] == 1


def test_a_discharge_is_no_stay() -> None:
    """A note at the moment of discharge is still of the unit."""
    leaving = unit(3, None, None, eventtype="discharge")

    assert departments_of({"discharge": [note(3)], "transfers": [unit(1, 3, "MICU"), leaving]}) == ["MICU"]


def test_of_stays_that_begin_together_the_longest_counts() -> None:
    """A bed that was left at once hides no stay."""
    stays = [unit(1, 1, "Ambulatory"), unit(1, 5, "Ward"), unit(1, 5, "MICU"), unit(1, 3, "Clinic")]

    assert departments_of({"discharge": [note(1), note(4)], "transfers": stays}) == ["MICU", "MICU"]


@pytest.mark.parametrize("nameless", [None, "Unknown"])
def test_a_unit_that_nobody_knows_hides_no_named_one_that_began_with_it(nameless: str | None) -> None:
    """While both last, the named one is known, without a contradiction; then nobody knows, whatever was around."""
    stays = [unit(0, 12, "Ward"), unit(1, 10, nameless), unit(1, 4, "MICU"), unit(1, 11, nameless, hadm_id="21")]

    found = adapt(mimic4.ADAPTER, MIMIC4, {"discharge": [note(hour) for hour in (0, 2, 6, 11)], "transfers": stays})

    assert [row["department"] for row in rows_of(found)] == ["Ward", "MICU", "UNKNOWN", "Ward"]
    assert "conflicting_transfers" not in found.unresolved


def test_a_note_of_no_hospital_stay_is_of_its_patients_unit() -> None:
    """A radiology report of someone who went home from the emergency department."""
    export: Export = {
        "radiology": [note(2, stay=None), note(2, stay=None, patient="11"), note(2, stay="99")],
        "transfers": [unit(1, 3, "Emergency Department", hadm_id=None)],
    }

    assert departments_of(export) == ["Emergency Department", "UNKNOWN", "UNKNOWN"]


def test_an_inner_stay_interrupts_the_outer_one() -> None:
    """When it has ended, the patient is where they were before."""
    stays = [unit(8, 20, "Ward"), unit(10, 12, "Endoscopy"), unit(11, 12, None)]
    hours = (9, 10, 11, 12, 15, 20, 21)

    found = departments_of({"discharge": [note(hour) for hour in hours], "transfers": stays})

    assert found == ["Ward", "Endoscopy", "UNKNOWN", "UNKNOWN", "Ward", "Ward", "UNKNOWN"]


@given(
    st.lists(st.tuples(HOURS, HOURS, st.sampled_from(["A", "B", "C", None])), max_size=8).map(
        lambda stays: [stay for stay in stays if stay[0] is not None]
    )
)
def test_at_any_time_the_stay_that_began_last_counts(stays: list[tuple[int, int | None, str | None]]) -> None:
    """Of those that have not ended; of several that began together a named one, then the longest, then by name."""
    hours = range(8)

    found = departments_of(
        {
            "discharge": [note(hour) for hour in hours],
            "transfers": [unit(*stay) for stay in stays] or [unit(99, 99, "x")],
        }
    )

    ends = [(start, 99 if stop is None else stop, name) for start, stop, name in stays]
    there = [[stay for stay in ends if stay[0] <= hour <= stay[1]] for hour in hours]
    order = [sorted(each, key=lambda stay: (-stay[0], stay[2] is None, -stay[1], stay[2] or "")) for each in there]
    last = [each[0][2] if each else None for each in order]
    assert found == [name or "UNKNOWN" for name in last]


def test_services_of_other_hospital_stays_do_not_count() -> None:
    """Not even of one whose number begins alike."""
    export: Export = {"discharge": [note(5)], "services": [service(0, "MED", "21"), service(0, "SURG", "200")]}

    assert departments_of(export) == ["UNKNOWN"]


@pytest.mark.parametrize(("stay", "patient"), [("20", "10"), ("20.0", "10.0"), ("020", "0010"), (" 20 ", "10.")])
def test_ids_that_were_saved_as_other_numbers_join(stay: str, patient: str) -> None:
    """As floats or with zeros before, in notes or in side tables; patient and encounter are those of the number."""
    ids: Cells = {"hadm_id": stay, "subject_id": patient}
    person: Cells = {"subject_id": "10", "gender": "F", "anchor_age": "52.0", "anchor_year": "2150.0"}
    plain: Export = {"services": [service(0, "MED")], "diagnoses_icd": [diagnosis("I10", number="1.0")]}
    other: Export = {name: [{**row, **ids} for row in rows] for name, rows in plain.items()}
    exports: list[Export] = [
        {"discharge": [{**note(1), **ids}], "patients": [person], **plain},
        {"discharge": [note(1)], "patients": [{**person, "subject_id": patient}], **other},
    ]

    found = [adapt(mimic4.ADAPTER, MIMIC4, export) for export in exports]

    for adapted in found:
        (row,) = rows_of(adapted)
        assert (row["patient"], row["encounter"], row["department"]) == ("10", "20", "MED")
        assert not adapted.unresolved


@pytest.mark.parametrize("time", ["", "yesterday", "2150-02-30 00:00:00", "01/02/2150"])
def test_an_unreadable_time_is_counted_and_no_error(time: str) -> None:
    """In a note whatever hangs on its time is unknown; in a side table its row says nothing."""
    export: Export = {
        "discharge": [{**note(), "charttime": time}, note(5)],
        "services": [{**service(0, "MED"), "transfertime": time}],
        "transfers": [{**unit(0, 9, "MICU"), "intime": time}, {**unit(4, 9, "Ward"), "outtime": time}],
        "patients": [{"subject_id": "10", "gender": "F", "anchor_age": "50", "anchor_year": "2150"}],
    }

    found = adapt(mimic4.ADAPTER, MIMIC4, export)

    # An empty end is none, so the stay goes on.
    assert [row["department"] for row in rows_of(found)] == ["UNKNOWN", "UNKNOWN" if time else "Ward"]
    assert (found.unresolved["age_band"], found.unresolved["year"]) == (1, 1)


@pytest.mark.parametrize(
    ("codes", "chapter"),
    [
        ([("1", "I10", "10"), ("2", "A419", "10")], "icd10-09"),
        ([("1", "4280", "9")], "icd09-07"),
        ([("2", "I10", "10")], None),
        ([("1", "I10", "10"), ("1", "A419", "10"), ("1", "?", "10")], "icd10-01"),
        ([("1", "I10", None)], "icd10-09"),
        ([("1", "E8889", None)], None),
        ([("1", "nonsense", "10")], None),
    ],
)
def test_the_first_diagnosis_tells_the_chapter(codes: list[tuple[str, str, str | None]], chapter: str | None) -> None:
    """By the list that the row names, else by the only one possible; of several first ones the first chapter counts."""
    rows = [
        {"hadm_id": "20", "seq_num": number, "icd_code": code, "icd_version": version}
        for number, code, version in codes
    ]

    found = adapt(mimic4.ADAPTER, MIMIC4, {"discharge": [note()], "diagnoses_icd": rows})

    assert rows_of(found)[0]["feature.diagnosis_chapter"] == chapter
