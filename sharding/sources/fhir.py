"""FHIR R4 and R5 bulk exports (NDJSON): DocumentReference and DiagnosticReport, with what the other resources know.

A file is taken for what its name and its beginning agree on (``Patient.000.ndjson``); any other file of resources is
read for notes and for the rest. Nothing is ever fetched: a text by ``url`` is looked up among the Binary resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from sharding.sources.adapter import MIXED, NOTES, ONLY_TEXT, Adapted, Contents
from sharding.sources.fhir_lookups import lookup_tables
from sharding.sources.fhir_notes import NOTE_COLUMNS, TYPE_MARK, FhirNotes
from sharding.sources.fhir_roles import known_of
from sharding.sources.fhir_sides import SIDE_COLUMNS, FhirSides
from sharding.sources.fhir_texts import parts, texts_of
from sharding.sources.fhir_types import BINARY, NOTE_TYPES, RESOURCE_TYPES, SIDE_TYPES
from sharding.sources.jsonl import JsonLinesSource
from sharding.sources.lookup_plans import LookupPlan
from sharding.sources.roles import to_roles
from sharding.sources.source import Header, Source

# Binaries, perhaps among others, hold text of notes; of the other resources a few cells are kept.
RESOURCES, BINARIES = "resources", "binaries"
# Measured with encounters of 270 bytes that have an identifier each: 210 bytes of lookup tables, and 2,800 bytes in
# memory; with binaries of 460 bytes, of which only the place is kept, 120 and 2,100. The rest is room for longer cells.
ROW_BYTES, ROW_MEMORY_BYTES = 400, 3_000

_TYPE_OF_WORD = {name.lower(): name for name in RESOURCE_TYPES}


@dataclass(frozen=True, slots=True)
class FhirAdapter:
    """See ``Adapter``."""

    name: str = "fhir"
    features: tuple[str, ...] = ("age_band", "note_type", "sex", "year")
    # An identifier of one resource decides what another one refers to.
    lookup_plan: LookupPlan | None = None

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
        return NOTES if types & NOTE_TYPES else BINARIES if BINARY in types else RESOURCES

    def lacking(self, stem: str, header: Header) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's form
        """See ``Adapter``; no element of a resource is needed."""
        return ()

    def source(self, use: str, file_source: Source) -> Source:
        """See ``Adapter``."""
        if not isinstance(file_source, JsonLinesSource):
            return file_source
        return FhirNotes(file_source) if use == NOTES else FhirSides(file_source, holds_notes=use == MIXED)

    def columns(self, use: str, header: Header) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's form
        """See ``Adapter``; the sources make the columns themselves."""
        return {name: name for name in (NOTE_COLUMNS if use == NOTES else SIDE_COLUMNS)}

    def contents(self, use: str) -> Contents:
        """See ``Adapter``; a row is a resource."""
        if use == NOTES:
            return ONLY_TEXT
        return Contents(use in (MIXED, BINARIES), row_bytes=ROW_BYTES, row_memory_bytes=ROW_MEMORY_BYTES)

    def lookups(self, sides: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """See ``Adapter``."""
        return lookup_tables([sides[use] for use in sorted(sides)])

    def parts(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        """See ``Adapter``."""
        return parts(rows, lookups)

    def records(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Adapted:
        """See ``Adapter``."""
        texts = texts_of(rows, lookups)
        found, noted = known_of(texts.rows, lookups)
        whole = texts.rows.append_column("text", texts.texts)
        adapted = to_roles(whole, found, ids="id", texts="text", rejected=texts.rejected)
        return replace(adapted, unresolved=adapted.unresolved + noted)


ADAPTER = FhirAdapter()
