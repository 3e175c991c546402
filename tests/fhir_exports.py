"""Small made FHIR exports in the forms of R4 and R5; nothing in them is a person's."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sharding.sources.adapter import MIXED, NOTES
from sharding.sources.fhir import FhirAdapter
from sharding.sources.jsonl import JsonLinesSource
from sharding.sources.source import Header

FHIR = FhirAdapter()
LINES = JsonLinesSource()

Resource = dict[str, Any]


def attachment(text: str, content_type: str = "text/plain; charset=utf-8") -> Resource:
    """An Attachment that holds a text."""
    return {"contentType": content_type, "data": base64.b64encode(text.encode()).decode()}


def document(
    name: str,
    *,
    contents: Sequence[Resource] | None = None,
    patient: str | None = None,
    encounter: str | None = None,
    setting: Resource | None = None,
    **fields: Any,
) -> Resource:
    """A DocumentReference of R4; other fields as they are given, those that are None left out."""
    context: Resource = {"encounter": [{"reference": f"Encounter/{encounter}"}]} if encounter else {}
    made = {
        "resourceType": "DocumentReference",
        "id": name,
        "status": "current",
        "date": "2018-05-17T09:00:00.123-05:00",
        "subject": {"reference": patient} if patient else None,
        "context": {**context, "practiceSetting": setting} if setting else context,
        "content": [{"attachment": item} for item in (contents or [attachment(f"note {name}")])],
        **fields,
    }
    return {key: value for key, value in made.items() if value is not None}


def report(name: str, forms: Sequence[Resource], **fields: Any) -> Resource:
    """A DiagnosticReport."""
    made = {"resourceType": "DiagnosticReport", "id": name, "status": "final", "presentedForm": list(forms), **fields}
    return made if forms else {key: value for key, value in made.items() if key != "presentedForm"}


def encounter(name: str, *, service: Resource | None = None, provider: str | None = None, **fields: Any) -> Resource:
    """An Encounter of R4, ambulatory; other fields as they are given, those that are None left out."""
    made = {
        "resourceType": "Encounter",
        "id": name,
        "class": {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "AMB", "display": "ambulatory"},
        "serviceType": service,
        "serviceProvider": {"reference": provider} if provider else None,
        **fields,
    }
    return {key: value for key, value in made.items() if value is not None}


def export(*, num_patients: int, num_documents: int, version: int) -> list[Resource]:
    """Patients, an encounter and an organization each, and documents with every way to a department.

    Documents 0 and 1 of each five have a practice setting, 2 has its encounter's service, 3 its custodian, and 4 the
    class of the encounter; releases 4 and 5 differ in form only.
    """
    organizations = [
        {
            "resourceType": "Organization",
            "id": f"o{n}",
            "name": f"Clinic {n}",
            "identifier": [{"system": "s", "value": f"v{n}"}],
        }
        for n in range(5)
    ]
    patients = [
        {
            "resourceType": "Patient",
            "id": f"p{n}",
            "gender": ("female", "male")[n % 2],
            "birthDate": f"19{20 + n}-03-04",
        }
        for n in range(num_patients)
    ]
    encounters = [_encounter(n, version) for n in range(5)]
    documents = [_document(n, n % num_patients, version) for n in range(num_documents)]
    return [*documents, *encounters, *patients, *organizations]


def write_lines(path: Path, resources: Iterable[Mapping[str, Any]]) -> Path:
    """Resources as NDJSON."""
    path.write_bytes(b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in resources))
    return path


def write_export(folder: Path, resources: Iterable[Resource], *, num_files: int = 1) -> Path:
    """A folder with ``num_files`` files for each type, as servers export them."""
    folder.mkdir(parents=True, exist_ok=True)
    by_type: dict[str, list[Resource]] = {}
    for item in resources:
        by_type.setdefault(item["resourceType"], []).append(item)
    for kind, items in by_type.items():
        for number in range(num_files):
            write_lines(folder / f"{kind}.{number:03d}.ndjson", items[number::num_files])
    return folder


def read_resources(path: Path, use: str, *, block_bytes: int = 1 << 20) -> tuple[pa.Table, Counter[str]]:
    """All rows of a file for a use, and what was rejected."""
    source = FHIR.source(use, LINES)
    columns = FHIR.columns(use, Header((), closed=False))
    found = [rows for span in source.spans(path, block_bytes) for rows in source.read(path, span, columns=columns)]
    return pa.concat_tables([rows.table for rows in found]), sum((rows.rejected for rows in found), Counter())


def adapt(
    folder: Path, resources: Iterable[Mapping[str, Any]], **options: int
) -> tuple[list[dict[str, Any]], tuple[Counter[str], Counter[str]]]:
    """Records of resources in one mixed file, by id, and (rejected, unresolved)."""
    path = write_lines(folder / "all.ndjson", resources)
    rows, rejected = read_resources(path, NOTES, **options)
    sides, _ = read_resources(path, MIXED, **options)
    adapted = FHIR.records(rows, FHIR.lookups({MIXED: sides}))
    records = sorted(adapted.table.to_pylist(), key=lambda row: str(row["id"]))
    return records, (rejected + adapted.rejected, adapted.unresolved)


def _encounter(number: int, version: int) -> Resource:
    made: Resource = {"resourceType": "Encounter", "id": f"e{number}"}
    service = {"text": f"Service {number}"} if number in (0, 1, 2) else None
    coding = {"code": f"class-{number}"}
    if version == 4:
        return {**made, "class": coding, **({"serviceType": service} if service else {})}
    services = [{"reference": {"reference": "HealthcareService/h"}}, {"concept": service}] if service else []
    return {**made, "class": [{"coding": [coding]}], **({"serviceType": services} if services else {})}


def _document(number: int, patient: int, version: int) -> Resource:
    way = number % 5
    made = document(f"d{number}", patient=f"Patient/p{patient}", type={"coding": [{"code": f"type-{number % 3}"}]})
    del made["context"]
    setting = {"practiceSetting": {"text": f"Ward {way}"}} if way < 2 else {}
    if way == 3:
        made["custodian"] = {"reference": f"Organization?identifier=s|v{way}"}
    visit = {"reference": f"Encounter/e{way}"}
    if version == 4:
        return {**made, "context": {"encounter": [visit], **setting}}
    return {**made, "context": [{"reference": "Appointment/a"}, visit], **setting}
