"""Documents and reports as rows: one for each attachment, since each is a text of its own.

Sources: FHIR R4 and R5, "DocumentReference" and "DiagnosticReport". In R5 a document's ``context`` is a list of
references, and ``practiceSetting`` and ``period`` stand beside it; both forms are read wherever they occur.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharding.sources.cutting import read_span
from sharding.sources.fhir_attachments import NO_CONTENT
from sharding.sources.fhir_json import (
    RESOURCE_TYPE,
    Resource,
    child,
    children,
    concept_name,
    leading_type,
    resource_of,
    string,
)
from sharding.sources.fhir_references import reference_key
from sharding.sources.fhir_types import (
    DIAGNOSTIC_REPORT,
    DOCUMENT_REFERENCE,
    ENCOUNTER,
    NOTE_TYPES,
    ORGANIZATION,
    OTHER_TYPES,
    PATIENT,
    RESOURCE_TYPES,
    SIDE_TYPES,
)
from sharding.sources.source import INVALID_UNICODE, MALFORMED, UTF8_BOM, Header, Rows, Source, Span, string_table

ENTERED_IN_ERROR = "entered_in_error"
NOTE_COLUMNS = (
    "id",
    "data",
    "content_type",
    "url",
    "patient",
    "encounter",
    "practice_setting",
    "custodian",
    "date",
    "note_type",
)
LOINC = "http://loinc.org"
NO_NOTES = SIDE_TYPES | OTHER_TYPES
# No column of a table is called so: a table of patients is no FHIR resource.
TYPE_MARK = f"{RESOURCE_TYPE}="


@dataclass(frozen=True, slots=True)
class FhirNotes:
    """Reads the notes among FHIR resources, one a line; resources of other types are no records."""

    lines: Source

    def header(self, path: Path, head: bytes) -> Header:
        """See ``Source``; each column is ``TYPE_MARK`` with a type of resource that is in the head."""
        types: dict[str, None] = {}
        for line in head.removeprefix(UTF8_BOM).split(b"\n"):
            found = leading_type(line)
            if found is None and line.strip():
                resource = resource_of(line)
                found = None if isinstance(resource, str) else string(resource, RESOURCE_TYPE)
            if found in RESOURCE_TYPES:
                types[found] = None
        return Header(tuple(TYPE_MARK + name for name in types), closed=path.stat().st_size == len(head))

    def spans(self, path: Path, block_bytes: int) -> list[Span]:
        """See ``Source``."""
        return self.lines.spans(path, block_bytes)

    def read(self, path: Path, span: Span, *, columns: Mapping[str, str]) -> Iterator[Rows]:
        """See ``Source``."""
        cells: dict[str, list[bytes | None]] = {name: [] for name in NOTE_COLUMNS}
        rejected: Counter[str] = Counter()
        for _, line in resource_lines(path, span):
            if leading_type(line) in NO_NOTES:
                continue
            for row in _rows_of(line):
                values = row if isinstance(row, str) else _encoded(row)
                if isinstance(values, str):
                    rejected[values] += 1
                    continue
                for name, value in zip(NOTE_COLUMNS, values, strict=True):
                    cells[name].append(value)
        yield Rows(string_table(cells)[0].select(list(columns)), rejected, frozenset(columns))


def resource_lines(path: Path, span: Span) -> Iterator[tuple[int, bytes]]:
    """The lines of a span that are not blank, each with its offset in the file."""
    offset = span.start
    for line in read_span(path, span).split(b"\n"):
        found = line if offset else line.removeprefix(UTF8_BOM)
        if found.strip():
            yield offset + len(line) - len(found), found
        offset += len(line) + 1


def _rows_of(line: bytes) -> Iterator[dict[str, str | None] | str]:
    """The attachments of a line; for each that can be none, the reason."""
    resource = resource_of(line)
    if isinstance(resource, str):
        yield resource
        return
    kind = resource[RESOURCE_TYPE]
    if kind not in NOTE_TYPES:
        return
    attachments = _attachments(resource, kind)
    if "entered-in-error" in (string(resource, "status"), string(resource, "docStatus")):
        yield from [ENTERED_IN_ERROR] * max(1, len(attachments))
        return
    if not attachments:
        yield NO_CONTENT
    about = _about_document(resource) if kind == DOCUMENT_REFERENCE else _about_report(resource)
    stem = string(resource, "id") and f"{kind}/{resource['id']}"
    for index, attachment in enumerate(attachments):
        yield _row(attachment, stem and f"{stem}#{index}", about)


def _attachments(resource: Resource, kind: str) -> list[Any]:
    listed = resource.get("content" if kind == DOCUMENT_REFERENCE else "presentedForm", [])
    if not isinstance(listed, list):
        return [None]
    if kind == DIAGNOSTIC_REPORT:
        return listed
    return [item.get("attachment", {}) if isinstance(item, dict) else None for item in listed]


def _row(attachment: Any, raw_id: str | None, about: dict[str, str | None]) -> dict[str, str | None] | str:
    if not isinstance(attachment, dict) or not isinstance(attachment.get("data", ""), str):
        return MALFORMED
    data = attachment.get("data")
    if data is None and not string(attachment, "url"):
        return NO_CONTENT
    content_type = string(attachment, "contentType")
    return {**about, "id": raw_id, "data": data, "content_type": content_type, "url": string(attachment, "url")}


def _about_document(document: Resource) -> dict[str, str | None]:
    context = child(document, "context")  # R4; an R5 context is a list
    encounters = [*children(context, "encounter"), *(children(document, "context") if not context else [])]
    setting = child(document, "practiceSetting") or child(context, "practiceSetting")
    starts = [string(child(parent, "period"), "start") for parent in (context, document)]
    return {
        "patient": reference_key(child(document, "subject"), PATIENT),
        "encounter": _first_key(encounters),
        "practice_setting": concept_name(setting),
        "custodian": reference_key(child(document, "custodian"), ORGANIZATION),
        "date": next((date for date in (string(document, "date"), *starts) if date), None),
        "note_type": _note_type(child(document, "type")),
    }


def _about_report(report: Resource) -> dict[str, str | None]:
    effective = string(report, "effectiveDateTime") or string(child(report, "effectivePeriod"), "start")
    return {
        "patient": reference_key(child(report, "subject"), PATIENT),
        "encounter": reference_key(child(report, "encounter"), ENCOUNTER),
        "practice_setting": None,
        "custodian": None,
        "date": effective or string(report, "issued"),
        "note_type": _note_type(child(report, "code")),
    }


def _first_key(references: list[Resource]) -> str | None:
    return next((key for item in references if (key := reference_key(item, ENCOUNTER))), None)


def _note_type(concept: Resource) -> str | None:
    """The first display of a LOINC code, else what the concept is called."""
    codings = [item for item in children(concept, "coding") if string(item, "system") == LOINC]
    return next((name for item in codings if (name := string(item, "display"))), None) or concept_name(concept)


def _encoded(row: dict[str, str | None]) -> list[bytes | None] | str:
    try:
        return [None if value is None else value.encode("utf-8") for value in map(row.get, NOTE_COLUMNS)]
    except UnicodeEncodeError:
        return INVALID_UNICODE
