"""What patients, encounters, organizations and binaries of an export say, as tables to look notes up in.

Sources: FHIR R4 and R5, "Patient", "Encounter", "Organization", "Binary". In R5 an encounter's ``class`` is a list of
CodeableConcepts and its ``serviceType`` a list of CodeableReferences; both forms are read wherever they occur.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.errors import DataError
from schemas.seals import label, opened
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
    OTHER_TYPES,
    PATIENT,
    SIDE_TYPES,
)
from sharding.sources.keyed import KEY, find, keyed, latest, values_at
from sharding.sources.source import INVALID_UNICODE, Header, Rows, Source, Span, string_table

# Where a binary's line stands: the texts of an export may lie in binaries, and are far larger than memory.
PLACE = ("path", "start", "num_bytes")
FIELDS = {
    PATIENT: ("birth_date", "sex"),
    ENCOUNTER: ("service_type", "class_name", "organization"),
    ORGANIZATION: ("name",),
    BINARY: ("content_type", "digest", *PLACE),
}
# Column that marks a binary whose last versions, updated together or nobody knows when, say different things.
AMBIGUOUS = "is_ambiguous"
# An identifier is a row of its own, whose target is the key of the resource that has it.
IDENTIFIERS = "identifiers"
TARGET = "target"
SIDE_COLUMNS = (KEY, "type", "updated", TARGET, *(name for names in FIELDS.values() for name in names))
NEVER = -(2**63)
PARSED_AT_ONCE = 1 << 20
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
        for start, line in resource_lines(path, span):
            if leading_type(line) in (NO_SIDES if self.holds_notes else OTHER_TYPES):
                continue
            sides = _sides_of(line, (str(path), str(start), str(len(line))))
            if isinstance(sides, str):
                rejected[sides] += not self.holds_notes  # otherwise whoever reads the notes has counted it
                continue
            if sides is None and not self.holds_notes:
                raise DataError(
                    f"{label(path)}: holds notes, but its name and its beginning say that it holds none; rename it"
                )
            for values in sides or []:
                for name, value in zip(SIDE_COLUMNS, values, strict=True):
                    cells[name].append(value)
        yield Rows(string_table(cells)[0].select(list(columns)), +rejected, frozenset(columns))


def lookup_tables(sides: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """One searchable table per type of resource, and one from identifiers to resources.

    Of several versions of a resource the one that was updated last counts, and of those that were updated together, or
    nobody knows when, the one whose cells sort last, null first: the choice never hangs on a file's name or order. A
    text is not chosen so: binaries that differ are marked. An identifier of two resources is none's.
    """
    empty = pa.schema([(name, pa.large_string()) for name in SIDE_COLUMNS]).empty_table()
    whole = pa.concat_tables([empty, *sides])
    tables = {kind: _of_type(whole, kind) for kind in FIELDS}
    identifiers = _unambiguous(whole.filter(pc.equal(whole.column("type"), IDENTIFIERS)))
    return {**{kind: keyed(table) for kind, table in tables.items()}, IDENTIFIERS: keyed(identifiers)}


def find_resources(lookups: Mapping[str, pa.Table], kind: str, keys: Sequence[str | None]) -> pa.Array:
    """Row in the table of a type for each reference key, int64, null where the export has no such resource."""
    rows = find(lookups[kind], keys)
    targets = values_at(lookups[IDENTIFIERS], TARGET, find(lookups[IDENTIFIERS], keys)).to_pylist()
    by_identifier = find(lookups[kind], targets)
    rows[rows < 0] = by_identifier[rows < 0]
    return pa.array(rows, mask=rows < 0)


def binary_data(binaries: pa.Table, rows: pa.Array) -> list[str | None]:
    """The base64 of binaries by their rows, read from where they stand; null for null and for one that holds nothing.

    Raises:
        DataError: the file has changed since its binaries were found.
    """
    found = binaries.select([KEY, *PLACE]).take(rows).to_pylist()
    data: list[str | None] = [None] * len(found)
    by_path: dict[str, list[int]] = {}
    for index, row in enumerate(found):
        if row["path"] is not None:
            by_path.setdefault(row["path"], []).append(index)
    for path, indexes in by_path.items():
        with opened(Path(path)) as file:
            for index in indexes:
                file.seek(int(found[index]["start"]))
                resource = resource_of(file.read(int(found[index]["num_bytes"])))
                if isinstance(resource, str) or resource_key(BINARY, str(resource.get("id"))) != found[index][KEY]:
                    raise DataError(
                        f"{label(Path(path))}: changed while it was read; run again when nobody writes to it"
                    )
                data[index] = string(resource, "data")
    return data


def _sides_of(line: bytes, place: Sequence[str]) -> list[list[bytes | None]] | str | None:
    """The rows of a line: the resource and its identifiers; none if it is of no use, the reason if it cannot be read.

    Returns:
        None for a note.
    """
    resource = resource_of(line)
    if isinstance(resource, str):
        return resource
    kind, own_id = resource[RESOURCE_TYPE], string(resource, "id")
    if kind in NOTE_TYPES:
        return None
    if kind not in SIDE_TYPES or not own_id:
        return []
    key = resource_key(kind, own_id)
    updated = string(child(resource, "meta"), "lastUpdated")
    rows = [{KEY: key, "type": kind, "updated": updated, **_fields(resource, kind, place)}]
    rows += [{KEY: other, "type": IDENTIFIERS, TARGET: key} for other in identifier_keys(resource, kind)]
    try:
        return [
            [None if value is None else value.encode("utf-8") for value in map(row.get, SIDE_COLUMNS)] for row in rows
        ]
    except UnicodeEncodeError:
        return INVALID_UNICODE


def _fields(resource: Resource, kind: str, place: Sequence[str]) -> dict[str, str | None]:
    if kind == PATIENT:
        return {"birth_date": string(resource, "birthDate"), "sex": string(resource, "gender")}
    if kind == ORGANIZATION:
        return {"name": string(resource, "name")}
    if kind == BINARY:
        about = {"content_type": string(resource, "contentType")}
        data = string(resource, "data")
        return {**about, "digest": _digest(data), **dict(zip(PLACE, place, strict=True))} if data else about
    services = [child(item, "concept") or item for item in children(resource, "serviceType")]
    classes = [concept_name(item) or coding_name(item) for item in children(resource, "class")]
    return {
        "service_type": next((name for name in map(concept_name, services) if name), None),
        "class_name": next((name for name in classes if name), None),
        "organization": reference_key(child(resource, "serviceProvider"), ORGANIZATION),
    }


def _of_type(whole: pa.Table, kind: str) -> pa.Table:
    rows = whole.filter(pc.equal(whole.column("type"), kind))
    updated = pa.array(_moments(rows.column("updated")))
    rows = rows.set_column(rows.column_names.index("updated"), "updated", updated)
    last = latest(rows, ["updated", *FIELDS[kind]]).select([KEY, *FIELDS[kind]])
    return last.append_column(AMBIGUOUS, pc.is_in(last.column(KEY), _differing(rows))) if kind == BINARY else last


def _differing(binaries: pa.Table) -> pa.Array:
    """Keys of which the rows that were updated last do not all say the same."""
    frame = pl.DataFrame(binaries.select([KEY, "updated", "content_type", "digest"]))
    newest = frame.filter(pl.col("updated") == pl.col("updated").max().over(KEY)).drop("updated").unique()
    return newest.filter(pl.col(KEY).is_duplicated())[KEY].to_arrow(compat_level=pl.CompatLevel.oldest())


def _digest(data: str) -> str:
    """BLAKE2b-128 of base64 without white space; a lone surrogate, which is none, has a digest too."""
    return blake2b("".join(data.split()).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _moments(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """UTC microseconds, int64 [N], ``NEVER`` where nothing is said; a part at a time, since strings take much room."""
    parts = (column.slice(start, PARSED_AT_ONCE).to_pylist() for start in range(0, len(column), PARSED_AT_ONCE))
    moments = (None if text is None else utc_microseconds(text) for part in parts for text in part)
    return np.fromiter((NEVER if moment is None else moment for moment in moments), np.int64, count=len(column))


def _unambiguous(identifiers: pa.Table) -> pa.Table:
    """Identifier keys with their target, but for those that more than one resource has."""
    targets = pl.DataFrame(identifiers.select([KEY, TARGET])).group_by(KEY)
    counted = targets.agg(pl.col(TARGET).min(), pl.col(TARGET).n_unique().alias("num_targets"))
    single = counted.filter(pl.col("num_targets") == 1).sort(KEY)
    return single.select(KEY, TARGET).to_arrow(compat_level=pl.CompatLevel.oldest())
