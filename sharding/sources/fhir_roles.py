"""What is known of notes from what they say themselves and from the resources that they refer to.

An encounter speaks for its own patient only: of a note that names another one, or one that is not known to be the same,
it says nothing, and the record is counted. A note that names nobody is about the encounter's patient. An encounter that
was entered in error says nothing either, not even that it took place. A record that refers to a resource whose versions
contradict each other is counted too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from sharding.features import year_of
from sharding.sources.adapter import CONFLICTING, ENCOUNTER_ENTERED_IN_ERROR, ENCOUNTER_OF_OTHER_PATIENT
from sharding.sources.cells import age_bands, mapped
from sharding.sources.fhir_lookups import AMBIGUOUS, find_resources
from sharding.sources.fhir_notes import OTHER_SUBJECT
from sharding.sources.fhir_sides import WITHDRAWN
from sharding.sources.fhir_types import ENCOUNTER, ORGANIZATION, PATIENT
from sharding.sources.keyed import HASH, KEY

_TIMES = ("start", "creation", "date")
_NOTE_CELLS = ("patient", OTHER_SUBJECT, "encounter", "practice_setting", "custodian", *_TIMES, "note_type")
# What an encounter tells of a note; its key too, since the note is none of an encounter of another patient.
_VISIT_CELLS = ("encounter", "service_type", "class_name", "organization")


def known_of(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> tuple[pl.DataFrame, Counter[str]]:
    """All roles of notes but their ids and texts.

    Args:
        rows: Notes as they were read.
        lookups: See ``fhir_lookups``.

    Returns:
        As many rows as ``roles.to_roles`` takes them, and how many of them a resource could not speak for, by why.
    """
    notes = pl.DataFrame(rows.select(_NOTE_CELLS))
    visits = _answers(notes["encounter"], ENCOUNTER, lookups)
    nameless = pl.when(pl.col(OTHER_SUBJECT).is_null()).then(visits["subject"])
    named = notes.select(pl.coalesce("patient", nameless)).to_series()
    patients = _answers(named, PATIENT, lookups)
    whose = notes.select(pl.coalesce(patients[KEY], named)).to_series()
    is_other = (whose != visits["subject"]).fill_null(False)
    is_withdrawn = visits[WITHDRAWN].is_not_null()
    told = visits.with_columns(pl.coalesce(KEY, notes["encounter"]).alias("encounter"))
    own = told.select(pl.when(~(is_other | is_withdrawn)).then(pl.col(name)).alias(name) for name in _VISIT_CELLS)
    custodians = _answers(notes["custodian"], ORGANIZATION, lookups)
    providers = _answers(own["organization"], ORGANIZATION, lookups)
    written = notes.select(pl.coalesce(_TIMES)).to_series()
    found = notes.select(
        pl.coalesce(
            "practice_setting",
            own["service_type"],
            custodians["name"],
            providers["name"],
            own["class_name"],
        ).alias("department"),
        _ids(whose, PATIENT),
        _ids(own["encounter"], ENCOUNTER),
        written.alias("time"),
        age_bands(patients["birth_date"], written),
        "note_type",
        patients["sex"],
        mapped(written, year_of).alias("year"),
    )
    conflicting = {
        PATIENT: patients[AMBIGUOUS],
        ENCOUNTER: visits[AMBIGUOUS],
        ORGANIZATION: custodians[AMBIGUOUS] | providers[AMBIGUOUS],
    }
    noted = Counter({f"{CONFLICTING}{kind.lower()}": int(touched.sum()) for kind, touched in conflicting.items()})
    noted[ENCOUNTER_OF_OTHER_PATIENT] = int(is_other.sum())
    noted[ENCOUNTER_ENTERED_IN_ERROR] = int(is_withdrawn.sum())
    return found, +noted


def _answers(references: pl.Series, kind: str, lookups: Mapping[str, pa.Table]) -> pl.DataFrame:
    """What the resources say that some keys lead to, in the keys' order; null where the export has none."""
    rows = find_resources(lookups, kind, references.to_list())
    found = pl.DataFrame(lookups[kind].drop_columns([HASH]).take(rows))
    return found.with_columns(pl.col(AMBIGUOUS).fill_null(False))


def _ids(keys: pl.Series, kind: str) -> pl.Series:
    """The ids in keys, so that a group stays a group without its resource; null for a key that is an identifier."""
    prefix = f"{kind}/"
    is_id = pl.col("key").str.starts_with(prefix)
    found = keys.to_frame("key").select(pl.when(is_id).then(pl.col("key").str.strip_prefix(prefix)))
    return found.to_series().alias(kind.lower())
