"""FHIR R4 and R5 bulk exports (NDJSON): DocumentReference and DiagnosticReport, with what the other resources know.

A file is taken for what its name and its beginning agree on (``Patient.000.ndjson``); any other file of resources is
read for notes and for the rest. Nothing is ever fetched: a text by ``url`` is looked up among the Binary resources.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import FEATURE_PREFIX
from sharding.dates import years_between
from sharding.features import age_band, map_distinct, sex_of, year_of
from sharding.sources.adapter import MIXED, NOTES, UNKNOWN, Adapted
from sharding.sources.fhir_notes import NOTE_COLUMNS, TYPE_MARK, FhirNotes
from sharding.sources.fhir_sides import SIDE_COLUMNS, FhirSides, find_resources, lookup_tables
from sharding.sources.fhir_texts import parts, texts_of
from sharding.sources.fhir_types import (
    ENCOUNTER,
    NOTE_TYPES,
    ORGANIZATION,
    PATIENT,
    RESOURCE_TYPES,
    SIDE_TYPES,
)
from sharding.sources.jsonl import JsonLinesSource
from sharding.sources.keyed import KEY
from sharding.sources.source import Header, Source

RESOURCES = "resources"
# A record without an id is rejected later; not every note has an encounter; who has no date has no year, which counts.
UNCOUNTED = ("id", "encounter", "time")

_TYPE_OF_WORD = {name.lower(): name for name in RESOURCE_TYPES}


@dataclass(frozen=True, slots=True)
class FhirAdapter:
    """See ``Adapter``."""

    name: str = "fhir"
    features: tuple[str, ...] = ("age_band", "note_type", "sex", "year")

    def use_of(self, stem: str, header: Header) -> str | None:
        """See ``Adapter``."""
        marked = [column for column in header.columns if column.startswith(TYPE_MARK)]
        types = {column.removeprefix(TYPE_MARK) for column in marked}
        words = {_TYPE_OF_WORD[word] for word in re.split(r"[^a-z]+", stem) if word in _TYPE_OF_WORD}
        is_certain = header.closed or words == types
        if header.is_cut:
            return MIXED
        if not types or (is_certain and not types & (NOTE_TYPES | SIDE_TYPES)):
            return None
        if not is_certain or (types & NOTE_TYPES and types & SIDE_TYPES):
            return MIXED
        return NOTES if types & NOTE_TYPES else RESOURCES

    def source(self, use: str, file_source: Source) -> Source:
        """See ``Adapter``."""
        if not isinstance(file_source, JsonLinesSource):
            return file_source
        return FhirNotes(file_source) if use == NOTES else FhirSides(file_source, holds_notes=use == MIXED)

    def columns(self, use: str, header: Header) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's form
        """See ``Adapter``; the sources make the columns themselves."""
        return {name: name for name in (NOTE_COLUMNS if use == NOTES else SIDE_COLUMNS)}

    def lookups(self, sides: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """See ``Adapter``."""
        return lookup_tables([sides[use] for use in sorted(sides)])

    def parts(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        """See ``Adapter``."""
        return parts(rows, lookups)

    def records(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Adapted:
        """See ``Adapter``."""
        found = texts_of(rows, lookups)
        known = _known(found.rows, lookups)
        table = pa.table({**known, "text": found.texts})
        unresolved = Counter({role.removeprefix(FEATURE_PREFIX): known[role].null_count for role in known})
        for role in UNCOUNTED:
            del unresolved[role]
        filled = table.column("department").fill_null(UNKNOWN)
        return Adapted(
            table.set_column(table.column_names.index("department"), "department", filled), found.rejected, +unresolved
        )


def _known(rows: pa.Table, lookups: Mapping[str, pa.Table]) -> dict[str, pa.Array]:
    """All roles but the text; null where nobody knows."""
    patients = _found(lookups, PATIENT, rows.column("patient"))
    encounters = _found(lookups, ENCOUNTER, rows.column("encounter"))
    custodians = _found(lookups, ORGANIZATION, rows.column("custodian"))
    providers = _found(lookups, ORGANIZATION, encounters["organization"])
    written = pc.coalesce(rows.column("start"), rows.column("creation"), rows.column("date"))
    dates = written.to_pylist()
    births = patients["birth_date"].to_pylist()
    bands = [age_band(years_between(birth, date)) for birth, date in zip(births, dates, strict=True)]
    return {
        "id": rows.column("id"),
        "department": pc.coalesce(
            rows.column("practice_setting"),
            encounters["service_type"],
            custodians["name"],
            providers["name"],
            encounters["class_name"],
        ),
        "patient": _ids(patients[KEY], rows.column("patient"), PATIENT),
        "encounter": _ids(encounters[KEY], rows.column("encounter"), ENCOUNTER),
        "time": written,
        f"{FEATURE_PREFIX}age_band": pa.array(bands, pa.large_string()),
        f"{FEATURE_PREFIX}note_type": rows.column("note_type"),
        f"{FEATURE_PREFIX}sex": map_distinct(patients["sex"], sex_of),
        f"{FEATURE_PREFIX}year": map_distinct(written, year_of),
    }


def _found(lookups: Mapping[str, pa.Table], kind: str, keys: pa.Array | pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """The columns of a lookup table at the resources that some keys refer to."""
    table = lookups[kind]
    rows = find_resources(lookups, kind, keys.to_pylist())
    return {name: table.column(name).take(rows) for name in table.column_names}


def _ids(found: pa.ChunkedArray, referred: pa.ChunkedArray, kind: str) -> pa.Array:
    """The id of the resource that was found, else the id in the reference, so that a group stays a group without it."""
    prefix = f"{kind}/"
    pairs = zip(found.to_pylist(), referred.to_pylist(), strict=True)
    keys = (key or other or "" for key, other in pairs)
    return pa.array([key.removeprefix(prefix) if key.startswith(prefix) else None for key in keys], pa.large_string())
