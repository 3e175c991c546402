"""Made exports in the exact public columns of MIMIC-III, MIMIC-IV and OMOP, and adapters run over them in memory."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sharding.sources.adapter import NOTES, Adapted, Adapter
from sharding.sources.source import Header
from tests.builds import csv_bytes

MIMIC3 = {
    "NOTEEVENTS": "ROW_ID SUBJECT_ID HADM_ID CHARTDATE CHARTTIME STORETIME CATEGORY DESCRIPTION CGID ISERROR TEXT",
    "SERVICES": "ROW_ID SUBJECT_ID HADM_ID TRANSFERTIME PREV_SERVICE CURR_SERVICE",
    "TRANSFERS": "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID DBSOURCE EVENTTYPE PREV_CAREUNIT CURR_CAREUNIT PREV_WARDID "
    "CURR_WARDID INTIME OUTTIME LOS",
    "PATIENTS": "ROW_ID SUBJECT_ID GENDER DOB DOD DOD_HOSP DOD_SSN EXPIRE_FLAG",
    "DIAGNOSES_ICD": "ROW_ID SUBJECT_ID HADM_ID SEQ_NUM ICD9_CODE",
    "PROCEDURES_ICD": "ROW_ID SUBJECT_ID HADM_ID SEQ_NUM ICD9_CODE",
}
MIMIC4 = {
    "discharge": "note_id subject_id hadm_id note_type note_seq charttime storetime text",
    "radiology": "note_id subject_id hadm_id note_type note_seq charttime storetime text",
    "discharge_detail": "note_id subject_id field_name field_value field_ordinal",
    "services": "subject_id hadm_id transfertime prev_service curr_service",
    "transfers": "subject_id hadm_id transfer_id eventtype careunit intime outtime",
    "patients": "subject_id gender anchor_age anchor_year anchor_year_group dod",
    "diagnoses_icd": "subject_id hadm_id seq_num icd_code icd_version",
    "procedures_icd": "subject_id hadm_id seq_num chartdate icd_code icd_version",
}
OMOP = {
    "note": "note_id person_id note_date note_datetime note_type_concept_id note_class_concept_id note_title note_text "
    "encoding_concept_id language_concept_id provider_id visit_occurrence_id visit_detail_id note_source_value "
    "note_event_id note_event_field_concept_id",
    "visit_detail": "visit_detail_id person_id visit_detail_concept_id visit_detail_start_date "
    "visit_detail_start_datetime visit_detail_end_date visit_detail_end_datetime visit_detail_type_concept_id "
    "provider_id care_site_id visit_detail_source_value visit_detail_source_concept_id admitted_from_concept_id "
    "admitted_from_source_value discharged_to_source_value discharged_to_concept_id preceding_visit_detail_id "
    "parent_visit_detail_id visit_occurrence_id",
    "visit_occurrence": "visit_occurrence_id person_id visit_concept_id visit_start_date visit_start_datetime "
    "visit_end_date visit_end_datetime visit_type_concept_id provider_id care_site_id visit_source_value "
    "visit_source_concept_id admitted_from_concept_id admitted_from_source_value discharged_to_concept_id "
    "discharged_to_source_value preceding_visit_occurrence_id",
    "provider": "provider_id provider_name npi dea specialty_concept_id care_site_id year_of_birth gender_concept_id "
    "provider_source_value specialty_source_value specialty_source_concept_id gender_source_value "
    "gender_source_concept_id",
    "care_site": "care_site_id care_site_name place_of_service_concept_id location_id care_site_source_value "
    "place_of_service_source_value",
    "person": "person_id gender_concept_id year_of_birth month_of_birth day_of_birth birth_datetime race_concept_id "
    "ethnicity_concept_id location_id provider_id care_site_id person_source_value gender_source_value "
    "gender_source_concept_id race_source_value race_source_concept_id ethnicity_source_value "
    "ethnicity_source_concept_id",
    "concept": "concept_id concept_name domain_id vocabulary_id concept_class_id standard_concept concept_code "
    "valid_start_date valid_end_date invalid_reason",
}

Export = Mapping[str, Sequence[Mapping[str, str | None]]]


def table_of(columns: str, rows: Sequence[Mapping[str, str | None]]) -> pa.Table:
    """A table of strings with all of a public table's columns; what a row does not say is null.

    Raises:
        KeyError: a row has a cell for a column that the table does not have.
    """
    names = columns.split()
    if unknown := {name for row in rows for name in row} - set(names):
        raise KeyError(*unknown)
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.large_string()) for name in names})


def adapt(adapter: Adapter, schema: Mapping[str, str], export: Export) -> Adapted:
    """What an adapter makes of an export with notes of one table, in memory."""
    sides: dict[str, pa.Table] = {}
    notes: list[pa.Table] = []
    for name, rows in export.items():
        table = table_of(schema[name], rows)
        header = Header(tuple(table.column_names), closed=True)
        use = adapter.use_of(name.lower(), header)
        if use is None:
            continue
        read = pa.table({role: table.column(column) for role, column in adapter.columns(use, header).items()})
        if use == NOTES:
            notes.append(read)
        else:
            sides[use] = read
    return adapter.records(pa.concat_tables(notes), adapter.lookups(sides))


def rows_of(adapted: Adapted) -> list[dict[str, Any]]:
    """Its records."""
    rows: list[dict[str, Any]] = adapted.table.to_pylist()
    return rows


def write_export(folder: Path, schema: Mapping[str, str], export: Export, *, suffix: str) -> Path:
    """Write each table as one file: ``.csv``, ``.csv.gz``, ``.jsonl`` (without nulls) or ``.parquet``."""
    folder.mkdir(parents=True)
    for name, rows in export.items():
        table = table_of(schema[name], rows)
        path = folder / f"{name}{suffix}"
        content = csv_bytes([tuple(row.values()) for row in table.to_pylist()], table.column_names)
        if suffix == ".parquet":
            pq.write_table(table, path, row_group_size=max(1, len(rows) // 2))
        elif suffix == ".jsonl":
            said = [{key: cell for key, cell in row.items() if cell is not None} for row in table.to_pylist()]
            path.write_text("".join(f"{json.dumps(row)}\n" for row in said))
        else:
            path.write_bytes(_gzipped(content) if suffix.endswith(".gz") else content)
    return folder


def _gzipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write(content)
    return buffer.getvalue()
