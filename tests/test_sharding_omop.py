"""OMOP notes become records whose department is the care site of their visit, else of their provider."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.sources import omop
from tests.exports import OMOP, Export, adapt, rows_of

Cells = Mapping[str, str | None]
NOTE: Cells = {
    "note_id": "0071",
    "person_id": "5",
    "note_date": "2019-05-17",
    "note_datetime": "2019-05-17 10:11:12",
    "note_class_concept_id": "706391",
    "note_title": "Letter to the family of someone",
    "note_text": "made \r\n note ",
    "provider_id": "30",
    "visit_occurrence_id": "40",
    "visit_detail_id": "50",
}
SITES = [{"care_site_id": "1", "care_site_name": "Ward"}, {"care_site_id": "2", "care_site_name": "Clinic"}]
SITES += [{"care_site_id": "3", "care_site_name": "Office"}]
PLACES: Export = {
    "care_site": SITES,
    "visit_detail": [{"visit_detail_id": "50", "care_site_id": "1"}],
    "visit_occurrence": [{"visit_occurrence_id": "40", "care_site_id": "2"}],
    "provider": [{"provider_id": "30", "care_site_id": "3", "specialty_source_value": "Cardiology"}],
}


def record_of(note: Cells, export: Export) -> Mapping[str, str | None]:
    """The record of a note."""
    return rows_of(adapt(omop.ADAPTER, OMOP, {"note": [note], **export}))[0]


def conflicts_of(export: Export) -> dict[str, int]:
    """How many records relied on each table that contradicts itself, of one note."""
    counts = adapt(omop.ADAPTER, OMOP, {"note": [NOTE], **export}).unresolved
    prefix = "conflicting_"
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}


def test_a_note_becomes_a_record() -> None:
    """Every role from its public column, the text byte for byte; the title is used for nothing."""
    export: Export = {
        **PLACES,
        "person": [
            {
                "person_id": "5",
                "gender_concept_id": "8507",
                "year_of_birth": "1950",
                "month_of_birth": "5",
                "day_of_birth": "18",
            }
        ],
        "concept": [{"concept_id": "706391", "concept_name": "Discharge summary"}],
    }

    found = adapt(omop.ADAPTER, OMOP, {"note": [NOTE], **export})

    assert rows_of(found) == [
        {
            "id": "0071",
            "text": NOTE["note_text"],
            "department": "Ward",
            "patient": "5",
            "encounter": "40",
            "time": "2019-05-17T10:11:12.000000",
            "feature.age_band": "60-69",
            "feature.note_type": "Discharge summary",
            "feature.sex": "male",
            "feature.year": "2019",
        }
    ]
    assert not found.unresolved
    assert not found.rejected


@pytest.mark.parametrize(
    ("gone", "department"),
    [
        ([], "Ward"),
        (["visit_detail_id"], "Clinic"),
        (["visit_detail_id", "visit_occurrence_id"], "Office"),
        (["visit_detail_id", "visit_occurrence_id", "provider_id"], "UNKNOWN"),
    ],
)
def test_the_nearest_place_tells_the_department(gone: list[str], department: str) -> None:
    """Part of a visit, else visit, else provider; a provider's specialty is no place."""
    found = record_of({**NOTE, **dict.fromkeys(gone)}, PLACES)

    assert found["department"] == department


@pytest.mark.parametrize(
    ("site", "department"),
    [(None, "Clinic"), ("9", "Clinic"), ("0", "Clinic"), ("0.0", "Clinic"), ("01", "Ward"), ("1.0", "Ward")],
)
def test_a_place_without_a_named_care_site_is_passed_over(site: str | None, department: str) -> None:
    """No care site, which may be written as 0, or one that nobody named; ids are numbers."""
    nowhere = {"care_site_id": "0", "care_site_name": "Nowhere"}
    details = [{"visit_detail_id": "50", "care_site_id": site}]
    export: Export = {**PLACES, "visit_detail": details, "care_site": [*SITES, nowhere]}

    assert record_of(NOTE, export)["department"] == department


@pytest.mark.parametrize("table", ["visit_detail", "visit_occurrence", "provider", "care_site"])
def test_a_missing_table_is_passed_over(table: str) -> None:
    """The next one is asked; without names of care sites nothing is known."""
    found = record_of(NOTE, {name: rows for name, rows in PLACES.items() if name != table})

    assert found["department"] == {"visit_detail": "Clinic", "care_site": "UNKNOWN"}.get(table, "Ward")


@pytest.mark.parametrize(
    ("concept", "sex"), [("8507", "male"), ("8532", "female"), ("8551", None), ("0", None), (None, None)]
)
def test_sex_is_that_of_the_standard_concepts(concept: str | None, sex: str | None) -> None:
    """Any other concept is counted as unknown."""
    found = adapt(omop.ADAPTER, OMOP, {"note": [NOTE], "person": [{"person_id": "5", "gender_concept_id": concept}]})

    assert rows_of(found)[0]["feature.sex"] == sex
    assert found.unresolved["sex"] == (sex is None)


@pytest.mark.parametrize(
    ("birth", "band"),
    [
        (("1950", "5", "17"), "60-69"),
        (("1949", "5", "17"), "70-79"),
        (("1949", "5", "18"), "60-69"),
        (("1949", "6", None), "60-69"),
        (("1949", None, None), None),
        (("1949", None, "18"), None),
        (("1948", None, None), "70-79"),
        (("1900", None, None), "90+"),
        (("1949", "2", "30"), None),
        ((None, "5", "17"), None),
    ],
)
def test_ages_count_from_what_is_known_of_a_birth(birth: tuple[str | None, ...], band: str | None) -> None:
    """Without a month or day, every day that it may be must give the same band."""
    person = dict(zip(("year_of_birth", "month_of_birth", "day_of_birth"), birth, strict=True))

    found = record_of(NOTE, {"person": [{"person_id": "5", **person}]})

    assert found["feature.age_band"] == band


@given(st.lists(st.sampled_from(["year_of_birth", "month_of_birth", "day_of_birth", "gender_concept_id"]), max_size=6))
def test_rows_of_a_person_that_complete_each_other_are_one(split: list[str]) -> None:
    """However the cells of a person are spread over rows, as long as no two tell different things."""
    whole = {"gender_concept_id": "8507", "year_of_birth": "1949", "month_of_birth": "5", "day_of_birth": "17"}
    rest = {name: cell for name, cell in whole.items() if name not in split}
    rows = [{"person_id": "5", **rest}, *({"person_id": "5", name: whole[name]} for name in split)]

    found = adapt(omop.ADAPTER, OMOP, {"note": [NOTE], "person": rows})

    assert found == adapt(omop.ADAPTER, OMOP, {"note": [NOTE], "person": [{"person_id": "5", **whole}]})


def test_zero_stands_for_no_visit_provider_or_concept() -> None:
    """Whatever side tables say of 0; a note type that no concept matches is unknown, and counted."""
    ids = ("visit_occurrence_id", "visit_detail_id", "provider_id", "note_class_concept_id")
    places: Export = {
        table: [{f"{table}_id": "0", "care_site_id": "1"}] for table in ("visit_detail", "visit_occurrence", "provider")
    }
    concepts = [{"concept_id": "0", "concept_name": "No matching concept"}]
    note = {**NOTE, **dict.fromkeys(ids, "0")}

    found = adapt(omop.ADAPTER, OMOP, {"note": [note], "care_site": SITES, **places, "concept": concepts})

    (row,) = rows_of(found)
    assert (row["department"], row["encounter"], row["feature.note_type"]) == ("UNKNOWN", None, None)
    assert found.unresolved["note_type"] == 1


@pytest.mark.parametrize("number", ["5", "5.0", "005"])
def test_ids_that_were_saved_as_other_numbers_join(number: str) -> None:
    """As floats or with zeros before."""
    people = [{"person_id": number, "gender_concept_id": "8507.0", "year_of_birth": "1950.0"}]
    visits = [{"visit_occurrence_id": "040", "care_site_id": "2", "person_id": number}]
    note = {**NOTE, "visit_occurrence_id": "40.0", "visit_detail_id": None}

    found = adapt(omop.ADAPTER, OMOP, {"note": [note], **PLACES, "person": people, "visit_occurrence": visits})

    (row,) = rows_of(found)
    assert (row["patient"], row["encounter"], row["department"]) == ("5", "40", "Clinic")
    assert (row["feature.sex"], row["id"]) == ("male", "0071")
    assert "encounter_of_other_patient" not in found.unresolved


@pytest.mark.parametrize(
    ("dates", "year"),
    [
        (("2019-05-17", "x"), "2019"),
        ((None, "2018-05-17 10:11:12"), "2018"),
        (("17.05.2019", "2018-05-17T10:11:12"), "2018"),
        (("x", None), None),
    ],
)
def test_a_note_without_a_date_has_that_of_its_time(dates: tuple[str | None, str | None], year: str | None) -> None:
    """An unreadable date is counted if the time is none either."""
    note = {**NOTE, **dict(zip(("note_date", "note_datetime"), dates, strict=True))}

    found = adapt(omop.ADAPTER, OMOP, {"note": [note]})

    record = rows_of(found)[0]
    assert record["feature.year"] == year
    assert (record["time"] or "")[:4] == (year or "")
    assert found.unresolved["year"] == (year is None)


@pytest.mark.parametrize(
    ("concepts", "note_type"),
    [
        ([{"concept_id": "706391", "concept_name": "Letter"}], "Letter"),
        ([{"concept_id": "706391", "concept_name": None}], "706391"),
        ([{"concept_id": "1", "concept_name": "Letter"}], "706391"),
        ([], "706391"),
    ],
)
def test_a_note_class_without_a_name_is_its_number(concepts: list[Cells], note_type: str) -> None:
    """Vocabularies are not always exported."""
    assert record_of(NOTE, {"concept": concepts})["feature.note_type"] == note_type


def test_notes_alone_are_records_too() -> None:
    """Without side tables all that they would say is unknown, and counted."""
    found = adapt(omop.ADAPTER, OMOP, {"note": [NOTE, {**NOTE, "note_class_concept_id": None, "person_id": None}]})

    assert found.unresolved == {"department": 2, "age_band": 2, "sex": 2, "note_type": 1, "patient": 1}


@pytest.mark.parametrize(
    ("table", "one", "other"),
    [
        ("person", {"person_id": "5", "year_of_birth": "1950"}, {"person_id": "5", "year_of_birth": "1951"}),
        ("person", {"person_id": "5", "gender_concept_id": "8507"}, {"person_id": "5", "gender_concept_id": "8532"}),
        ("concept", {"concept_id": "706391", "concept_name": "A"}, {"concept_id": "706391", "concept_name": "B"}),
        ("care_site", {"care_site_id": "1", "care_site_name": "Ward"}, {"care_site_id": "1", "care_site_name": "Hall"}),
        *(
            (table, {f"{table}_id": number, "care_site_id": "1"}, {f"{table}_id": number, "care_site_id": "2"})
            for table, number in (("visit_detail", "50"), ("visit_occurrence", "40"), ("provider", "30"))
        ),
    ],
)
def test_a_record_that_relies_on_rows_that_contradict_each_other_is_counted(
    table: str, one: Cells, other: Cells
) -> None:
    """By the table that they are of; two rows that are equal are one."""
    places = {"care_site": SITES, **({"visit_detail": PLACES["visit_detail"]} if table == "care_site" else {})}

    found = [conflicts_of({**places, table: rows}) for rows in ([one, other], [one, one], [other, other])]

    assert found == [{table: 1}, {}, {}]


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("visit_occurrence", [{"visit_occurrence_id": "40", "care_site_id": site} for site in "12"]),
        ("provider", [{"provider_id": "30", "care_site_id": site} for site in "12"]),
        ("visit_detail", [{"visit_detail_id": "50", "care_site_id": site} for site in ("1", "9", None)]),
        ("visit_detail", [{"visit_detail_id": "50", "care_site_id": "1", "person_id": person} for person in "56"]),
        ("care_site", [*SITES, {"care_site_id": "2", "care_site_name": "Hall"}]),
        ("care_site", [*SITES, {"care_site_id": "1", "place_of_service_source_value": "Hall"}]),
        ("concept", [{"concept_id": "706391", "concept_name": "A", "domain_id": domain} for domain in "XY"]),
    ],
)
def test_rows_that_a_record_does_not_rely_on_contradict_nothing(table: str, rows: list[Cells]) -> None:
    """Places after the one that told the department, other keys, cells that are not used, rows that say nothing."""
    assert conflicts_of({**PLACES, table: rows}) == {}


@pytest.mark.parametrize(
    ("table", "department", "encounter"),
    [("visit_occurrence", "Ward", None), ("visit_detail", "Clinic", "40"), ("both", "Office", None)],
)
def test_a_visit_of_another_person_says_nothing(table: str, department: str, encounter: str | None) -> None:
    """The next place is asked, the record is in no visit of somebody else, and it is counted."""
    others: Export = {
        name: [{**row, "person_id": "6"} for row in PLACES[name]]
        for name in ("visit_detail", "visit_occurrence")
        if table in (name, "both")
    }

    found = adapt(omop.ADAPTER, OMOP, {"note": [NOTE], **PLACES, **others})

    (row,) = rows_of(found)
    assert (row["department"], row["encounter"], row["patient"]) == (department, encounter, "5")
    assert found.unresolved["encounter_of_other_patient"] == 1


def test_a_part_of_a_visit_tells_whose_the_visit_is() -> None:
    """Also where the table of visits is not exported."""
    details = [{"visit_detail_id": "51", "visit_occurrence_id": "40", "person_id": "6"}]

    found = adapt(omop.ADAPTER, OMOP, {"note": [NOTE], "visit_detail": details})

    assert rows_of(found)[0]["encounter"] is None
    assert found.unresolved["encounter_of_other_patient"] == 1


def detail(visit: str | None, *, person: str | None = "5", site: str | None = None) -> Cells:
    """A part of a visit, that of ``NOTE``."""
    return {"visit_detail_id": "50", "visit_occurrence_id": visit, "person_id": person, "care_site_id": site}


@pytest.mark.parametrize(
    ("own", "details", "encounter", "counts"),
    [
        (None, [detail("41")], "41", {}),
        (None, [detail("41", person=None)], "41", {}),
        (None, [detail("0")], None, {}),
        (None, [detail("41", person="6")], None, {"encounter_of_other_patient": 1}),
        (None, [detail("41"), detail("42", person="6")], "41", {}),
        (None, [detail("41"), detail(None, site="1")], "41", {}),
        (None, [detail("41"), detail("42")], "41", {"conflicting_visit_detail": 1}),
        ("40", [detail("41"), detail("42")], "40", {}),
    ],
)
def test_the_visit_of_a_note_that_names_none_is_that_of_its_part(
    own: str | None, details: list[Cells], encounter: str | None, counts: dict[str, int]
) -> None:
    """CDM 5.4 requires it of VISIT_DETAIL, and not of NOTE; a visit that the note names itself stays."""
    note = {**NOTE, "visit_occurrence_id": own}

    found = adapt(omop.ADAPTER, OMOP, {"note": [note], "visit_detail": details})

    assert rows_of(found)[0]["encounter"] == encounter
    told = {name: count for name, count in found.unresolved.items() if name.startswith(("conflicting_", "encounter_"))}
    assert told == counts


@pytest.mark.parametrize(("person", "department", "encounter"), [("5", "Clinic", "40"), ("6", "Office", None)])
def test_the_visit_of_a_part_tells_the_department_of_its_own_patient(
    person: str, department: str, encounter: str | None
) -> None:
    """Where the part is of no care site; a visit of somebody else is none of the note's, though its part is."""
    visits = [{"visit_occurrence_id": "40", "care_site_id": "2", "person_id": person}]
    export: Export = {**PLACES, "visit_detail": [detail("40", person=None)], "visit_occurrence": visits}

    found = adapt(omop.ADAPTER, OMOP, {"note": [{**NOTE, "visit_occurrence_id": None}], **export})

    (row,) = rows_of(found)
    assert (row["department"], row["encounter"]) == (department, encounter)
    assert found.unresolved["encounter_of_other_patient"] == (person == "6")


def test_a_provider_speaks_for_every_person() -> None:
    """Whoever it treated."""
    notes = [{**NOTE, "person_id": person, "visit_detail_id": None, "visit_occurrence_id": None} for person in "56"]

    found = adapt(omop.ADAPTER, OMOP, {"note": notes, **PLACES})

    assert [row["department"] for row in rows_of(found)] == ["Office", "Office"]


IDS = st.one_of(st.none(), st.sampled_from(["1", "2", "01"]))
EXPORTS = st.fixed_dictionaries(
    {
        "note": st.lists(
            st.fixed_dictionaries(
                {**{name: st.just(cell) for name, cell in NOTE.items()}, "person_id": IDS}
                | dict.fromkeys(("provider_id", "visit_occurrence_id", "visit_detail_id"), IDS)
            ),
            min_size=1,
            max_size=6,
        ),
        **{
            table: st.lists(
                st.fixed_dictionaries({f"{table}_id": IDS, "care_site_id": IDS} | dict.fromkeys(named, IDS)), max_size=6
            )
            for table, named in (
                ("visit_detail", ("person_id", "visit_occurrence_id")),
                ("visit_occurrence", ("person_id",)),
                ("provider", ()),
            )
        },
        "care_site": st.lists(
            st.fixed_dictionaries({"care_site_id": IDS, "care_site_name": st.sampled_from([None, "A", "B"])}),
            max_size=4,
        ),
        "person": st.lists(
            st.fixed_dictionaries({"person_id": IDS, "year_of_birth": st.sampled_from([None, "1950", "1960"])}),
            max_size=4,
        ),
    }
)


@given(EXPORTS, st.randoms())
def test_shuffled_side_tables_give_equal_records(export: dict[str, list[Cells]], chance: random.Random) -> None:
    """Also with repeated rows that contradict each other."""
    shuffled = {name: chance.sample(rows, len(rows)) for name, rows in export.items()}

    found = adapt(omop.ADAPTER, OMOP, {**shuffled, "note": export["note"]})

    assert found == adapt(omop.ADAPTER, OMOP, export)


@given(EXPORTS, st.randoms())
def test_permuted_notes_give_permuted_records(export: dict[str, list[Cells]], chance: random.Random) -> None:
    """A record depends on its own row only."""
    order = chance.sample(range(len(export["note"])), len(export["note"]))
    permuted = {**export, "note": [export["note"][index] for index in order]}

    found = rows_of(adapt(omop.ADAPTER, OMOP, permuted))

    calm = rows_of(adapt(omop.ADAPTER, OMOP, export))
    assert found == [calm[index] for index in order]
