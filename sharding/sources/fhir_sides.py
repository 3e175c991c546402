"""What patients, encounters, organizations and binaries of an export say, as tables to look notes up in.

Sources: FHIR R4 and R5, "Patient", "Encounter", "Organization", "Binary". In R5 an encounter's ``class`` is a list of
CodeableConcepts and its ``serviceType`` a list of CodeableReferences; both forms are read wherever they occur.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import DataError
from schemas.seals import label
from sharding.dates import utc_microseconds
from sharding.sources.fhir_json import (
    RESOURCE_TYPE,
    Resource,
    child,
    children,
    coding_name,
    concept_name,
    leading_type,
    resource_of,
    string,
)
from sharding.sources.fhir_notes import resource_lines
from sharding.sources.fhir_references import identifier_keys, reference_key, resource_key
from sharding.sources.fhir_types import (
    BINARY,
    ENCOUNTER,
    NOTE_TYPES,
    ORGANIZATION,
    PATIENT,
    RESOURCE_TYPES,
    SIDE_TYPES,
)
from sharding.sources.keyed import KEY, find, keyed, latest, values_at
from sharding.sources.source import INVALID_UNICODE, Header, Rows, Source, Span, string_table

FIELDS = {
    PATIENT: ("birth_date", "sex"),
    ENCOUNTER: ("service_type", "class_name", "organization"),
    ORGANIZATION: ("name",),
    BINARY: ("content_type", "data"),
}
SIDE_COLUMNS = (KEY, "type", "updated", "identifiers", *(name for names in FIELDS.values() for name in names))
IDENTIFIERS = "identifiers"
TARGET = "target"
NEVER = -(2**63)


@dataclass(frozen=True, slots=True)
class FhirSides:
    """Reads the resources that say more about notes; ``holds_notes`` if notes are expected among them."""

    lines: Source
    holds_notes: bool

    def header(self, path: Path, head: bytes) -> Header:
        """See ``Source``."""
        return self.lines.header(path, head)

    def spans(self, path: Path, block_bytes: int) -> list[Span]:
        """See ``Source``."""
        return self.lines.spans(path, block_bytes)

    def read(self, path: Path, span: Span, *, columns: Mapping[str, str]) -> Iterator[Rows]:
        """See ``Source``."""
        cells: dict[str, list[bytes | None]] = {name: [] for name in SIDE_COLUMNS}
        rejected: Counter[str] = Counter()
        for line in resource_lines(path, span):
            kind = leading_type(line)
            if kind in NOTE_TYPES and not self.holds_notes:
                raise DataError(
                    f"{label(path)}: holds notes, but its name and its beginning say that it holds none; rename it"
                )
            values = [] if kind in RESOURCE_TYPES - SIDE_TYPES else _side(line)
            if isinstance(values, str):
                rejected[values] += not self.holds_notes  # otherwise whoever reads the notes has counted it
                continue
            for name, value in zip(SIDE_COLUMNS if values else (), values, strict=True):
                cells[name].append(value)
        yield Rows(string_table(cells)[0].select(list(columns)), +rejected, frozenset(columns))


def lookup_tables(sides: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """One searchable table per type of resource, and one from identifiers to resources.

    Of several versions of a resource the one that was updated last counts; an identifier of two resources is none's.
    """
    empty = pa.schema([(name, pa.large_string()) for name in SIDE_COLUMNS]).empty_table()
    whole = pa.concat_tables([empty, *sides])
    tables = {kind: _of_type(whole, kind) for kind in FIELDS}
    pairs = [
        (identifier, row[KEY])
        for kind in (PATIENT, ENCOUNTER, ORGANIZATION)
        for row in tables[kind].select([KEY, IDENTIFIERS]).to_pylist()
        for identifier in json.loads(row[IDENTIFIERS])
    ]
    lookups = {kind: keyed(table.select([KEY, *FIELDS[kind]])) for kind, table in tables.items()}
    return {**lookups, IDENTIFIERS: keyed(_unique_targets(pairs))}


def find_resources(lookups: Mapping[str, pa.Table], kind: str, keys: Sequence[str | None]) -> pa.Array:
    """Row in the table of a type for each reference key, int64, null where the export has no such resource."""
    rows = find(lookups[kind], keys)
    targets = values_at(lookups[IDENTIFIERS], TARGET, find(lookups[IDENTIFIERS], keys)).to_pylist()
    by_identifier = find(lookups[kind], targets)
    rows[rows < 0] = by_identifier[rows < 0]
    return pa.array(rows, mask=rows < 0)


def _side(line: bytes) -> list[bytes | None] | str:
    """The cells of ``SIDE_COLUMNS``; none if the resource is of no use, or the reason why it cannot be read."""
    resource = resource_of(line)
    if isinstance(resource, str):
        return resource
    kind, own_id = resource[RESOURCE_TYPE], string(resource, "id")
    if kind not in SIDE_TYPES or not own_id:
        return []
    row = {
        KEY: resource_key(kind, own_id),
        "type": kind,
        "updated": string(child(resource, "meta"), "lastUpdated"),
        IDENTIFIERS: json.dumps(identifier_keys(resource, kind)),
        **_fields(resource, kind),
    }
    try:
        return [None if value is None else value.encode("utf-8") for value in map(row.get, SIDE_COLUMNS)]
    except UnicodeEncodeError:
        return INVALID_UNICODE


def _fields(resource: Resource, kind: str) -> dict[str, str | None]:
    if kind == PATIENT:
        return {"birth_date": string(resource, "birthDate"), "sex": string(resource, "gender")}
    if kind == ORGANIZATION:
        return {"name": string(resource, "name")}
    if kind == BINARY:
        return {"content_type": string(resource, "contentType"), "data": string(resource, "data")}
    services = [child(item, "concept") or item for item in children(resource, "serviceType")]
    classes = [concept_name(item) or coding_name(item) for item in children(resource, "class")]
    return {
        "service_type": next((name for name in map(concept_name, services) if name), None),
        "class_name": next((name for name in classes if name), None),
        "organization": reference_key(child(resource, "serviceProvider"), ORGANIZATION),
    }


def _of_type(whole: pa.Table, kind: str) -> pa.Table:
    rows = whole.filter(pc.equal(whole.column("type"), kind))
    moments = [None if text is None else utc_microseconds(text) for text in rows.column("updated").to_pylist()]
    updated = pa.array([NEVER if moment is None else moment for moment in moments], pa.int64())
    rows = rows.set_column(rows.column_names.index("updated"), "updated", updated)
    return latest(rows, ["updated", IDENTIFIERS, *FIELDS[kind]])


def _unique_targets(pairs: Sequence[tuple[str, str]]) -> pa.Table:
    targets: dict[str, str | None] = {}
    for identifier, target in pairs:
        targets[identifier] = target if targets.get(identifier, target) == target else None
    single = {identifier: target for identifier, target in targets.items() if target is not None}
    kind = pa.large_string()
    return pa.table({KEY: pa.array(single.keys(), kind), TARGET: pa.array(single.values(), kind)})
