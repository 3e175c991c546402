"""OMOP CDM 5.4: NOTE, with the care site of its visit or provider, the person, and the name of its note class.

Tables and columns: https://ohdsi.github.io/CommonDataModel/cdm54.html. A note's title is free text and a provider's
specialty is no place, so neither is used. Diagnoses hang on no rank that says which one is a visit's first, so there
is no diagnosis chapter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from sharding.features import year_of
from sharding.sources.adapter import CONFLICTING, ENCOUNTER_OF_OTHER_PATIENT, NOTES, Adapted
from sharding.sources.cells import age_bands, cells, dated, mapped, moments, timestamps
from sharding.sources.families import FileKind, TableFamily
from sharding.sources.joins import CONFLICT, answers, any_set, first_told, lookup, telling
from sharding.sources.keyed import KEY
from sharding.sources.owners import IS_FOREIGN, KEYS, OWNERS, keys_of, owner_lookup, stay_key
from sharding.sources.roles import counted, to_roles

PERSON, CARE_SITE, CONCEPT = "person", "care_site", "concept"
VISIT_DETAIL, VISIT_OCCURRENCE, PROVIDER = "visit_detail", "visit_occurrence", "provider"
# The first of them that leads to a named care site tells the department; key in it and in the note.
PLACES = {VISIT_DETAIL: "visit_detail_id", VISIT_OCCURRENCE: "visit_occurrence_id", PROVIDER: "provider_id"}
# Those that are of one person, with what else their rows say of whose a place is.
VISITS = {VISIT_DETAIL: ("person_id", "visit_occurrence_id"), VISIT_OCCURRENCE: ("person_id",)}
# Standard concepts of the vocabulary Gender.
SEXES = {"8507": "male", "8532": "female"}
FLAGS = (ENCOUNTER_OF_OTHER_PATIENT, *(CONFLICTING + table for table in (*PLACES, CARE_SITE)))

KINDS = (
    FileKind(
        NOTES,
        None,
        ("note_id", "person_id", "note_text"),
        ("note_date", "note_datetime", "note_class_concept_id", *PLACES.values()),
    ),
    *(FileKind(table, table, (key, "care_site_id"), VISITS.get(table, ())) for table, key in PLACES.items()),
    FileKind(CARE_SITE, CARE_SITE, ("care_site_id", "care_site_name")),
    FileKind(PERSON, PERSON, ("person_id",), ("gender_concept_id", "year_of_birth", "month_of_birth", "day_of_birth")),
    FileKind(CONCEPT, CONCEPT, ("concept_id", "concept_name")),
)
# Of a place: whether rows of its care site give it several names.
_NAME_CONFLICT = "is_conflicting_name"
# Where 0 stands for none: for concepts by the model's conventions, for other ids by common use.
_NO_ID = "0"
_OPTIONAL_IDS = ("care_site_id", "concept_id", "note_class_concept_id", "gender_concept_id", *PLACES.values())
_INTEGERS = (*_OPTIONAL_IDS, "person_id", "year_of_birth", "month_of_birth", "day_of_birth")
_NOTE_CELLS = ("person_id", "note_date", "note_datetime", "note_class_concept_id", *PLACES.values())
_PERSON_CELLS = ("person_id", "year_of_birth", "month_of_birth", "day_of_birth", "gender_concept_id")


def _lookups(sides: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Of several rows with one key, the one that sorts first is taken; one without a care site or name says nothing."""
    sites = _cells(sides.get(CARE_SITE), ("care_site_id", "care_site_name")).drop_nulls("care_site_name")
    names = lookup(sites.rename({"care_site_id": KEY}))
    concepts = _cells(sides.get(CONCEPT), ("concept_id", "concept_name"))
    places = {table: _cells(sides.get(table), _place_cells(table)) for table in PLACES}
    return {
        **{table: _place_lookup(table, frame, names=names) for table, frame in places.items()},
        **_owner_lookups(places),
        PERSON: _person_lookup(_cells(sides.get(PERSON), _PERSON_CELLS)),
        CONCEPT: lookup(concepts.rename({"concept_id": KEY}).drop_nulls()),
    }


def _records(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Adapted:
    """Nothing is rejected."""
    notes = _cells(rows, _NOTE_CELLS)
    people = answers(notes["person_id"], lookups[PERSON])
    places = _places_of(notes, lookups)
    kinds = notes["note_class_concept_id"]
    concepts = answers(kinds, lookups[CONCEPT])
    days = notes.select(pl.coalesce(dated(notes["note_date"]), dated(notes["note_datetime"]))).to_series()
    found = notes.select(
        places["department"],
        pl.col("person_id").alias("patient"),
        places["encounter"],
        timestamps(notes.select(pl.coalesce(moments(notes["note_datetime"]), moments(days))).to_series()),
        age_bands(people["birth"], days),
        pl.coalesce(concepts["concept_name"], kinds).alias("note_type"),
        people["sex"],
        mapped(days, year_of).alias("year"),
    )
    unsure = {CONFLICTING + PERSON: people[CONFLICT], CONFLICTING + CONCEPT: concepts[CONFLICT]}
    flags = places.select(FLAGS).with_columns(**unsure)
    return counted(to_roles(rows, found, ids="note_id", texts="note_text", rejected=Counter()), flags)


def _cells(table: pa.Table | None, names: Sequence[str]) -> pl.DataFrame:
    """See ``cells``; an id that stands for none is null."""
    frame = cells(table, names, integers=_INTEGERS)
    optional = [name for name in names if name in _OPTIONAL_IDS]
    return frame.with_columns(pl.when(pl.col(name) != _NO_ID).then(name).alias(name) for name in optional)


def _place_cells(table: str) -> tuple[str, ...]:
    return (PLACES[table], "care_site_id", *VISITS.get(table, ()))


def _place_lookup(table: str, places: pl.DataFrame, *, names: pa.Table) -> pa.Table:
    """Name of the care site by the id of a visit or a part of one, and its person, or by that of a provider."""
    found = answers(places["care_site_id"], names)
    key = stay_key(PLACES[table], "person_id") if table in VISITS else pl.col(PLACES[table])
    department, is_unsure = found["care_site_name"].alias("department"), found[CONFLICT].alias(_NAME_CONFLICT)
    return lookup(places.select(key.alias(KEY), department, is_unsure).drop_nulls())


def _owner_lookups(places: Mapping[str, pl.DataFrame]) -> dict[str, pa.Table]:
    """Whose each visit and each part of one is; a part tells it of its visit too."""
    of_visits = (places[VISIT_OCCURRENCE], places[VISIT_DETAIL])
    tables = {VISIT_DETAIL: (places[VISIT_DETAIL],), VISIT_OCCURRENCE: of_visits}
    return {
        f"{table}_{OWNERS}": owner_lookup(members, stay=PLACES[table], patient="person_id")
        for table, members in tables.items()
    }


def _places_of(notes: pl.DataFrame, lookups: Mapping[str, pa.Table]) -> pl.DataFrame:
    """What is known of each note from where it was written, in the notes' order.

    Returns:
        ``department`` and ``encounter``, null where nothing is known, and a boolean column for each of ``FLAGS``.
    """
    keys = {
        table: keys_of(notes, lookups[f"{table}_{OWNERS}"], stay=PLACES[table], patient="person_id") for table in VISITS
    }
    visits = [(table, keys[table][name]) for table in VISITS for name in KEYS]
    asked = [*visits, (PROVIDER, notes[PLACES[PROVIDER]])]
    department, told = first_told([answers(places, lookups[table]) for table, places in asked], "department")
    by_table = {table: [found for (of, _), found in zip(asked, told, strict=True) if of == table] for table in PLACES}
    return notes.select(
        department,
        pl.when(~keys[VISIT_OCCURRENCE][IS_FOREIGN]).then(PLACES[VISIT_OCCURRENCE]).alias("encounter"),
        pl.any_horizontal(*(of_table[IS_FOREIGN] for of_table in keys.values())).alias(ENCOUNTER_OF_OTHER_PATIENT),
        *(any_set(found, CONFLICT).alias(CONFLICTING + table) for table, found in by_table.items()),
        any_set(told, _NAME_CONFLICT).alias(CONFLICTING + CARE_SITE),
    )


def _person_lookup(people: pl.DataFrame) -> pa.Table:
    """Birth as an ISO 8601 date, as far as it is known, and sex."""
    year, month, day = (
        pl.col(f"{part}_of_birth").str.zfill(width) for part, width in (("year", 4), ("month", 2), ("day", 2))
    )
    birth = pl.coalesce(pl.concat_str(year, month, day, separator="-"), pl.concat_str(year, month, separator="-"), year)
    sex = mapped(people["gender_concept_id"], SEXES.get)
    return lookup(telling(people.select(pl.col("person_id").alias(KEY), birth.alias("birth"), sex.alias("sex"))))


# Patient is person_id, encounter visit_occurrence_id, the record id note_id.
ADAPTER = TableFamily(
    name="omop",
    features=("age_band", "note_type", "sex", "year"),
    kinds=KINDS,
    make_lookups=_lookups,
    make_records=_records,
)
