"""What patients, encounters, organizations and binaries of an export say, as rows.

Sources: FHIR R4 and R5, "Patient", "Encounter", "Organization", "Binary". In R5 an encounter's ``class`` is a list of
CodeableConcepts and its ``serviceType`` a list of CodeableReferences; both forms are read wherever they occur.

Of an encounter that was entered in error nothing else is read (``status`` modifies all that its resource holds). The
``active`` of a patient or an organization is not read: it is false of the dead and of clinics that were closed too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from schemas.errors import DataError
from schemas.seals import label
from sharding.features import sex_of
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
    OTHER_TYPES,
    PATIENT,
    SIDE_TYPES,
)
from sharding.sources.keyed import KEY
from sharding.sources.source import INVALID_UNICODE, Header, Rows, Source, Span, string_table

# Where a binary's line stands: the texts of an export may lie in binaries, and are far larger than memory. The path is
# quoted as in a URL, since a folder's name need not be UTF-8.
PLACE = ("path", "start", "num_bytes")
# What is true of an encounter that was entered in error, as a cell, and first: where nobody knows which version is the
# last, an encounter that one of them withdraws is silent.
WITHDRAWN = "withdrawn"
FIELDS = {
    PATIENT: ("birth_date", "sex"),
    ENCOUNTER: (WITHDRAWN, "service_type", "class_name", "organization", "subject"),
    ORGANIZATION: ("name",),
    BINARY: ("content_type", "digest", *PLACE),
}
# An identifier is a row of its own, whose target is the key of the resource that has it.
IDENTIFIERS = "identifiers"
TARGET = "target"
SIDE_COLUMNS = (KEY, "type", "updated", "version", TARGET, *(name for names in FIELDS.values() for name in names))
# As of records: nothing can refer to it.
NULL_ID = "null_id"
NO_SIDES = NOTE_TYPES | OTHER_TYPES


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
        num_more, quoted = 0, quote(str(path), errors="surrogateescape")
        for start, line in resource_lines(path, span):
            leading = leading_type(line)
            if leading in (NO_SIDES if self.holds_notes else OTHER_TYPES):
                continue
            resource = resource_of(line)
            if isinstance(resource, str):
                # In a file of both, whoever reads the notes counts it unless it begins as a side resource.
                rejected[resource] += leading in SIDE_TYPES or not self.holds_notes
                continue
            if resource[RESOURCE_TYPE] in NOTE_TYPES and not self.holds_notes:
                raise DataError(
                    f"{label(path)}: holds notes, but its name and its beginning say that it holds none; rename it"
                )
            sides = _sides_of(resource, (quoted, str(start), str(len(line))))
            if isinstance(sides, str):
                rejected[sides] += 1
                continue
            num_more += max(0, len(sides) - 1)
            for values in sides:
                for name, value in zip(SIDE_COLUMNS, values, strict=True):
                    cells[name].append(value)
        table = string_table(cells)[0].select(list(columns))
        yield Rows(table, +rejected, frozenset(columns), num_more=num_more)


def _sides_of(resource: Resource, place: Sequence[str]) -> list[list[bytes | None]] | str:
    """The rows of a resource, its own and its identifiers', or why there are none; empty if it is of no use."""
    kind, own_id = resource[RESOURCE_TYPE], string(resource, "id")
    if kind not in SIDE_TYPES:
        return []
    if not own_id:
        return NULL_ID
    key = resource_key(kind, own_id)
    meta = child(resource, "meta")
    versions = {"updated": string(meta, "lastUpdated"), "version": string(meta, "versionId")}
    rows = [{KEY: key, "type": kind, **versions, **_fields(resource, kind, place)}]
    rows += [{KEY: other, "type": IDENTIFIERS, TARGET: key} for other in identifier_keys(resource, kind)]
    try:
        return [
            [None if value is None else value.encode("utf-8") for value in map(row.get, SIDE_COLUMNS)] for row in rows
        ]
    except UnicodeEncodeError:
        return INVALID_UNICODE


def _fields(resource: Resource, kind: str, place: Sequence[str]) -> dict[str, str | None]:
    if kind == PATIENT:
        return {"birth_date": string(resource, "birthDate"), "sex": sex_of(string(resource, "gender"))}
    if kind == ORGANIZATION:
        return {"name": string(resource, "name")}
    if kind == BINARY:
        about = {"content_type": string(resource, "contentType")}
        data = string(resource, "data")
        return {**about, "digest": _digest(data), **dict(zip(PLACE, place, strict=True))} if data else about
    if string(resource, "status") == "entered-in-error":
        return {WITHDRAWN: "true"}
    services = [child(item, "concept") or item for item in children(resource, "serviceType")]
    classes = [concept_name(item) or coding_name(item) for item in children(resource, "class")]
    return {
        "service_type": next((name for name in map(concept_name, services) if name), None),
        "class_name": next((name for name in classes if name), None),
        "organization": reference_key(child(resource, "serviceProvider"), ORGANIZATION),
        "subject": reference_key(child(resource, "subject"), PATIENT),
    }


def _digest(data: str) -> str:
    """BLAKE2b-128 of base64 without white space; a lone surrogate, which is none, has a digest too."""
    return blake2b("".join(data.split()).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
