"""OMOP CDM 5.4: NOTE, with the care site of its visit or provider, the person, and the name of its note class.

Tables and columns: https://ohdsi.github.io/CommonDataModel/cdm54.html. A note's title is free text and a provider's
specialty is no place, so neither is used. Diagnoses hang on no rank that says which one is a visit's first, so there
is no diagnosis chapter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl
import pyarrow as pa

from sharding.features import year_of
from sharding.sources.adapter import CONFLICTING, ENCOUNTER_OF_OTHER_PATIENT, NOTES, Adapted
from sharding.sources.cells import age_bands, cells, dated, mapped, moments, timestamps
from sharding.sources.families import FileKind, TableFamily
from sharding.sources.joins import CONFLICT, answers, any_set, completed, first_told, lookup, telling
from sharding.sources.keyed import KEY
from sharding.sources.lookup_plans import LookupKind, LookupPlan, Tables, alone
from sharding.sources.owners import IS_FOREIGN, KEYS, OWNERS, keys_of, owner_rows, owner_table, stay_key
from sharding.sources.roles import counted, to_roles

PERSON, CARE_SITE, CONCEPT = "person", "care_site", "concept"
VISIT_DETAIL, VISIT_OCCURRENCE, PROVIDER = "visit_detail", "visit_occurrence", "provider"
# The first of them that leads to a named care site tells the department; key in it and in the note.
PLACES = {VISIT_DETAIL: "visit_detail_id", VISIT_OCCURRENCE: "visit_occurrence_id", PROVIDER: "provider_id"}
# Those that are of one person, with what else their rows say of whose a place is.
VISITS = {VISIT_DETAIL: ("person_id", "visit_occurrence_id"), VISIT_OCCURRENCE: ("person_id",)}
# Lookup of the visit that a part is of: the model requires it of a part, and not of a note.
VISITS_OF_PARTS = "visits_of_parts"
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
    *(
        FileKind(table, table, (key, "care_site_id"), VISITS.get(table, ()), nullable=("care_site_id",))
        for table, key in PLACES.items()
    ),
    FileKind(CARE_SITE, CARE_SITE, ("care_site_id", "care_site_name"), nullable=("care_site_name",)),
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
_SIDE_CELLS = {
    **{table: (key, "care_site_id", *VISITS.get(table, ())) for table, key in PLACES.items()},
    CARE_SITE: ("care_site_id", "care_site_name"),
    PERSON: ("person_id", "year_of_birth", "month_of_birth", "day_of_birth", "gender_concept_id"),
    CONCEPT: ("concept_id", "concept_name"),
}


def _side_cells(use: str, table: pa.Table | None) -> pl.DataFrame:
    return _cells(table, _SIDE_CELLS[use])


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


def _name_rows(named: pl.DataFrame, *, key: str) -> pl.DataFrame:
    """A site or concept without a name says nothing."""
    return named.rename({key: KEY}).drop_nulls()


def _place_rows(places: pl.DataFrame, *, key: pl.Expr) -> pl.DataFrame:
    """A place without a care site says nothing."""
    return places.select(key.alias(KEY), "care_site_id").drop_nulls()


def _place_table(places: pl.DataFrame, made: Tables) -> pa.Table:
    """Names of care sites by the id of a visit or a part of one, and its person, or by that of a provider."""
    found = answers(places["care_site_id"], made[CARE_SITE])
    department, is_unsure = found["care_site_name"].alias("department"), found[CONFLICT].alias(_NAME_CONFLICT)
    return lookup(places.select(KEY, department, is_unsure).drop_nulls())


def _place_kinds() -> tuple[LookupKind, ...]:
    """Where notes were written; of several rows with one key, the one whose care site's name sorts first is taken."""
    keys = {of: stay_key(key, "person_id") if of in VISITS else pl.col(key) for of, key in PLACES.items()}
    names = LookupKind(CARE_SITE, (CARE_SITE,), partial(_name_rows, key="care_site_id"), alone(lookup))
    places = (LookupKind(of, (of,), partial(_place_rows, key=key), _place_table) for of, key in keys.items())
    return (names, *places)


def _visit_rows(parts: pl.DataFrame) -> pl.DataFrame:
    """The visit by the id of a part of it and its person; of several, the one that sorts first is taken."""
    visit = pl.col(PLACES[VISIT_OCCURRENCE]).alias("visit")
    return parts.select(stay_key(PLACES[VISIT_DETAIL], "person_id").alias(KEY), visit).drop_nulls()


def _owner_kinds() -> tuple[LookupKind, ...]:
    """Whose each visit and each part of one is; a part tells it of its visit too."""
    uses = {VISIT_DETAIL: (VISIT_DETAIL,), VISIT_OCCURRENCE: (VISIT_OCCURRENCE, VISIT_DETAIL)}
    rows = {of: partial(owner_rows, stay=PLACES[of], patient="person_id") for of in uses}
    return tuple(LookupKind(f"{of}_{OWNERS}", uses[of], rows[of], alone(owner_table)) for of in uses)


def _places_of(notes: pl.DataFrame, lookups: Mapping[str, pa.Table]) -> pl.DataFrame:
    """What is known of each note from where it was written, in the notes' order; its visit, if need be, from its part.

    Returns:
        ``department`` and ``encounter``, null where nothing is known, and a boolean column for each of ``FLAGS``.
    """
    parts = _keys_of(VISIT_DETAIL, notes, lookups)
    of_parts = [notes.select(visit=PLACES[VISIT_OCCURRENCE])]
    of_parts += [answers(parts[name], lookups[VISITS_OF_PARTS]) for name in KEYS]
    visit, told_visits = first_told(of_parts, "visit")
    notes = notes.with_columns(visit.alias(PLACES[VISIT_OCCURRENCE]))
    keys = {VISIT_DETAIL: parts, VISIT_OCCURRENCE: _keys_of(VISIT_OCCURRENCE, notes, lookups)}
    visits = [(table, keys[table][name]) for table in VISITS for name in KEYS]
    asked = [*visits, (PROVIDER, notes[PLACES[PROVIDER]])]
    department, told = first_told([answers(places, lookups[table]) for table, places in asked], "department")
    by_table = {table: [found for (of, _), found in zip(asked, told, strict=True) if of == table] for table in PLACES}
    by_table[VISIT_DETAIL] += told_visits[1:]
    return notes.select(
        department,
        pl.when(~keys[VISIT_OCCURRENCE][IS_FOREIGN]).then(PLACES[VISIT_OCCURRENCE]).alias("encounter"),
        pl.any_horizontal(*(of_table[IS_FOREIGN] for of_table in keys.values())).alias(ENCOUNTER_OF_OTHER_PATIENT),
        *(any_set(found, CONFLICT).alias(CONFLICTING + table) for table, found in by_table.items()),
        any_set(told, _NAME_CONFLICT).alias(CONFLICTING + CARE_SITE),
    )


def _keys_of(table: str, notes: pl.DataFrame, lookups: Mapping[str, pa.Table]) -> pl.DataFrame:
    """See ``keys_of``; of visits or parts of them."""
    return keys_of(notes, lookups[f"{table}_{OWNERS}"], stay=PLACES[table], patient="person_id")


def _person_rows(people: pl.DataFrame) -> pl.DataFrame:
    """The parts of a birth, as many digits as in ISO 8601, and sex."""
    year, month, day = (
        pl.col(f"{part}_of_birth").str.zfill(width) for part, width in (("year", 4), ("month", 2), ("day", 2))
    )
    sex = mapped(people["gender_concept_id"], SEXES.get).alias("sex")
    told = people.select(
        pl.col("person_id").alias(KEY), year.alias("year"), month.alias("month"), day.alias("day"), sex
    )
    return telling(told).drop_nulls(KEY)


def _person_table(people: pl.DataFrame) -> pa.Table:
    """Birth as an ISO 8601 date, as far as it is known, and sex; rows that complete each other are one."""
    dates = [pl.concat_str(names, separator="-") for names in (("year", "month", "day"), ("year", "month"), ("year",))]
    return lookup(telling(completed(people).select(KEY, pl.coalesce(dates).alias("birth"), "sex")))


_LOOKUP_KINDS = (
    *_place_kinds(),
    *_owner_kinds(),
    LookupKind(VISITS_OF_PARTS, (VISIT_DETAIL,), _visit_rows, alone(lookup)),
    LookupKind(PERSON, (PERSON,), _person_rows, alone(_person_table)),
    LookupKind(CONCEPT, (CONCEPT,), partial(_name_rows, key="concept_id"), alone(lookup)),
)
# Patient is person_id, encounter visit_occurrence_id, the record id note_id.
ADAPTER = TableFamily(
    name="omop",
    features=("age_band", "note_type", "sex", "year"),
    kinds=KINDS,
    lookup_plan=LookupPlan(_side_cells, _LOOKUP_KINDS),
    make_records=_records,
)
