"""Documents and reports as rows: one for each attachment, those of a document one after the other.

Sources: FHIR R4 and R5, "DocumentReference" and "DiagnosticReport". Both say of repetitions of ``content`` and of
``presentedForm`` that they are formats of the same document: which of them is read is decided when all are known. In R5
a document's ``context`` is a list of references, and ``practiceSetting`` and ``period`` stand beside it; both forms are
read wherever they occur.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharding.intended import ENTERED_IN_ERROR, NO_TEXT, OTHER_FORMAT
from sharding.sources.cutting import read_span
from sharding.sources.fhir_attachments import NO_CONTENT
from sharding.sources.fhir_json import (
    NOT_A_NOTE,
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
from sharding.sources.jsonl import ends_in_first_line
from sharding.sources.source import INVALID_UNICODE, MALFORMED, UTF8_BOM, Header, Rows, Source, Span, string_table

# Rows of one document have one ``document``; ``problem`` is the reason why an attachment can be no text, and
# ``other_subject`` is not null where a note says whom or what it is about, and that is no patient of the export.
DOCUMENT = "document"
PROBLEM = "problem"
OTHER_SUBJECT = "other_subject"
NOTE_COLUMNS = (
    DOCUMENT,
    PROBLEM,
    "id",
    "data",
    "content_type",
    "url",
    "patient",
    OTHER_SUBJECT,
    "encounter",
    "practice_setting",
    "custodian",
    "start",
    "creation",
    "date",
    "note_type",
)
LOINC = "http://loinc.org"
ATTACHMENT_FIELDS = {"content_type": "contentType", "url": "url", "creation": "creation"}
NO_NOTES = SIDE_TYPES | OTHER_TYPES
# No column of a table is called so: a table of patients is no FHIR resource.
TYPE_MARK = f"{RESOURCE_TYPE}="

Row = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class FhirNotes:
    """Reads the notes among FHIR resources, one a line; resources of other types are no records."""

    lines: Source

    def header(self, path: Path, head: bytes) -> Header:
        """See ``Source``; each column is ``TYPE_MARK`` with a type of resource that is in the head."""
        types: dict[str, None] = {}
        is_told = False
        for line in head.removeprefix(UTF8_BOM).split(b"\n"):
            found = leading_type(line)
            if found is None and line.strip():
                resource = resource_of(line)
                found = None if isinstance(resource, str) else string(resource, RESOURCE_TYPE)
                is_told |= resource == NOT_A_NOTE
            if found in RESOURCE_TYPES:
                types[found] = None
        closed = path.stat().st_size == len(head)
        marked = tuple(TYPE_MARK + name for name in types)
        is_cut = not (types or is_told or closed) and ends_in_first_line(head)
        return Header(marked, closed, is_cut=is_cut)

    def spans(self, path: Path, block_bytes: int) -> list[Span]:
        """See ``Source``."""
        return self.lines.spans(path, block_bytes)

    def read(self, path: Path, span: Span, *, columns: Mapping[str, str]) -> Iterator[Rows]:
        """See ``Source``."""
        cells: dict[str, list[bytes | None]] = {name: [] for name in NOTE_COLUMNS}
        rejected: Counter[str] = Counter()
        for start, line in resource_lines(path, span):
            if leading_type(line) in NO_NOTES:
                continue
            rows, reasons = _rows_of(line, str(start))
            rejected.update(reasons)
            for row in rows:
                for name in NOTE_COLUMNS:
                    cells[name].append(row.get(name))
        yield Rows(string_table(cells)[0].select(list(columns)), rejected, frozenset(columns))


def resource_lines(path: Path, span: Span) -> Iterator[tuple[int, bytes]]:
    """The lines of a span that are not blank, each with its offset in the file."""
    offset = span.start
    for line in read_span(path, span).split(b"\n"):
        found = line if offset else line.removeprefix(UTF8_BOM)
        if found.strip():
            yield offset + len(line) - len(found), found
        offset += len(line) + 1


def _rows_of(line: bytes, document: str) -> tuple[list[Row], Sequence[str]]:
    """The attachments of a line, and the reasons for what is none; a document that is rejected has one of its own."""
    resource = resource_of(line)
    if isinstance(resource, str):
        return [], [resource]
    kind = resource[RESOURCE_TYPE]
    if kind not in NOTE_TYPES:
        return [], []
    attachments = _attachments(resource, kind)
    others = [OTHER_FORMAT] * (len(attachments) - 1)
    if "entered-in-error" in (string(resource, "status"), string(resource, "docStatus")):
        return [], [ENTERED_IN_ERROR, *others]
    if not attachments:
        return [], [NO_TEXT if kind == DIAGNOSTIC_REPORT else NO_CONTENT]
    raw_id = string(resource, "id") and f"{kind}/{resource['id']}"
    about = _about_document(resource) if kind == DOCUMENT_REFERENCE else _about_report(resource)
    try:
        shared = _encoded({**about, DOCUMENT: document, "id": raw_id})
    except UnicodeEncodeError:
        return [], [INVALID_UNICODE, *others]
    return [{**shared, **_attachment_cells(attachment)} for attachment in attachments], []


def _attachments(resource: Resource, kind: str) -> list[Any]:
    listed = resource.get("content" if kind == DOCUMENT_REFERENCE else "presentedForm", [])
    if not isinstance(listed, list):
        return [None]
    if kind == DIAGNOSTIC_REPORT:
        return listed
    return [item.get("attachment", {}) if isinstance(item, dict) else None for item in listed]


def _attachment_cells(attachment: Any) -> Row:
    if not isinstance(attachment, dict) or not isinstance(attachment.get("data", ""), str):
        return _encoded({PROBLEM: MALFORMED})
    cells = {name: string(attachment, field) for name, field in ATTACHMENT_FIELDS.items()}
    if "data" not in attachment and not cells["url"]:
        return _encoded({PROBLEM: NO_CONTENT})
    try:
        return _encoded({**cells, "data": attachment.get("data")})
    except UnicodeEncodeError:
        return _encoded({PROBLEM: INVALID_UNICODE})


def _about_document(document: Resource) -> dict[str, str | None]:
    context = child(document, "context")  # R4; an R5 context is a list
    encounters = [*children(context, "encounter"), *(children(document, "context") if not context else [])]
    setting = child(document, "practiceSetting") or child(context, "practiceSetting")
    starts = [string(child(parent, "period"), "start") for parent in (context, document)]
    return {
        **_subject(document),
        "encounter": _first_key(encounters, ENCOUNTER),
        "practice_setting": concept_name(setting),
        "custodian": reference_key(child(document, "custodian"), ORGANIZATION),
        "start": next((start for start in starts if start), None),
        "date": string(document, "date"),
        "note_type": _note_type(child(document, "type")),
    }


def _about_report(report: Resource) -> dict[str, str | None]:
    performers = children(report, "performer")
    # A UUID or identifier does not tell the type; one that does goes first.
    performers.sort(key=lambda item: ORGANIZATION not in f"{item.get('reference')} {item.get('type')}")
    return {
        **_subject(report),
        "encounter": reference_key(child(report, "encounter"), ENCOUNTER),
        "practice_setting": None,
        "custodian": _first_key(performers, ORGANIZATION),
        "start": string(report, "effectiveDateTime") or string(child(report, "effectivePeriod"), "start"),
        "date": string(report, "issued"),
        "note_type": _note_type(child(report, "code")),
    }


def _subject(note: Resource) -> dict[str, str | None]:
    subject = child(note, "subject")
    patient = reference_key(subject, PATIENT)
    names_other = not patient and (string(subject, "reference") or children(subject, "identifier"))
    return {"patient": patient, OTHER_SUBJECT: "true" if names_other else None}


def _first_key(references: list[Resource], wanted: str) -> str | None:
    return next((key for item in references if (key := reference_key(item, wanted))), None)


def _note_type(concept: Resource) -> str | None:
    """What the first coding is called, LOINC before others; never the concept's text, which users may have typed."""
    codings = sorted(children(concept, "coding"), key=lambda item: string(item, "system") != LOINC)
    return next((name for name in map(coding_name, codings) if name), None)


def _encoded(row: Mapping[str, str | None]) -> Row:
    return {name: value.encode("utf-8") for name, value in row.items() if value is not None}
