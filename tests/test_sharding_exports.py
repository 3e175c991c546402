"""Exports of MIMIC-III, MIMIC-IV and OMOP become builds: equal records from every format, all accounted for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from schemas.folders import Build
from schemas.ledgers import BuildLedger
from schemas.shard_files import read_shard
from tests.builds import build, opened, records_of
from tests.commands import run_sharding
from tests.exports import MIMIC3, MIMIC4, OMOP, Export, write_export

ROOT = Path(__file__).parents[1]
SUFFIXES = (".csv", ".csv.gz", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Family:
    """A made export and what a build of it must hold.

    Attributes:
        schema: Columns of each table.
        export: Its rows.
        records: Raw id → department, patient, encounter, then the case features by name, but for the length.
        ledger: Of the build.
        unresolved: What no side table could say, or not for sure, of records that were read.
    """

    schema: Mapping[str, str]
    export: Export
    records: Mapping[str, Sequence[str | None]]
    ledger: BuildLedger
    unresolved: Mapping[str, int]


def _note3(number: str, stay: str | None, time: str | None, **changes: str) -> dict[str, str | None]:
    cells = {"SUBJECT_ID": "7", "HADM_ID": stay, "CHARTDATE": "2150-03-02", "CHARTTIME": time, "CATEGORY": "Nursing"}
    return {"ROW_ID": number, **cells, "TEXT": f'note "{number}",\r\nmade\n', **changes}


def _note4(number: str, stay: str | None, time: str, kind: str) -> dict[str, str | None]:
    cells = {"subject_id": "007", "hadm_id": stay, "note_type": kind, "note_seq": number, "charttime": time}
    return {"note_id": f"7-{kind}-{number}", **cells, "text": f"note {number} of {kind}\n\n"}


def _note5(number: str, **changes: str) -> dict[str, str | None]:
    cells = {"person_id": "7", "note_date": "2019-05-17", "note_class_concept_id": "44814637", "note_title": "To X"}
    return {"note_id": number, **cells, "note_text": f"note {number}", **changes}


FAMILIES = {
    "mimic3": Family(
        schema=MIMIC3,
        export={
            "NOTEEVENTS": [
                _note3("1", "20", "2150-03-02 10:00:00"),
                _note3("2", "20", None),
                _note3("3", "20", "2150-03-02 01:00:00", SUBJECT_ID="8"),
                _note3("4", None, "2150-03-02 10:00:00"),
                _note3("5", "20", "2150-03-02 10:00:00", ISERROR="1"),
                _note3("6", "20", "2150-03-02 10:00:00", TEXT=""),
                _note3("1", "20", "2150-03-02 10:00:00"),
                _note3("7", "20", "2150-03-02 01:00:00"),
            ],
            "SERVICES": [
                {"HADM_ID": "20", "TRANSFERTIME": "2150-03-02 10:00:00", "CURR_SERVICE": "MED"},
                {"HADM_ID": "20", "TRANSFERTIME": "2150-03-02 20:00:00", "PREV_SERVICE": "MED", "CURR_SERVICE": "SURG"},
            ],
            "TRANSFERS": [
                {
                    "SUBJECT_ID": "7",
                    "HADM_ID": "20",
                    "EVENTTYPE": "admit",
                    "CURR_CAREUNIT": "MICU",
                    "INTIME": "2150-03-02 00:00:00",
                    "OUTTIME": "2150-03-02 09:00:00",
                }
            ],
            "PATIENTS": [{"SUBJECT_ID": "7", "GENDER": "F", "DOB": f"185{year}-03-02 00:00:00"} for year in (0, 1)],
            "DIAGNOSES_ICD": [{"HADM_ID": "20", "SEQ_NUM": "1", "ICD9_CODE": "0389"}],
            "PROCEDURES_ICD": [{"HADM_ID": "20", "SEQ_NUM": "1", "ICD9_CODE": "3323"}],
        },
        records={
            "1": ("MED", "7", "20", "90+", "icd09-01", "Nursing", "female", "2150"),
            "2": ("SURG", "7", "20", "90+", "icd09-01", "Nursing", "female", "2150"),
            "3": ("UNKNOWN", "8", None, None, None, "Nursing", None, "2150"),
            "4": ("UNKNOWN", "7", None, "90+", None, "Nursing", "female", "2150"),
            "7": ("MICU", "7", "20", "90+", "icd09-01", "Nursing", "female", "2150"),
        },
        ledger=BuildLedger(
            num_read=8, num_kept=5, duplicates={"identical": 1}, rejected={"empty_text": 1, "marked_error": 1}
        ),
        unresolved={
            "age_band": 1,
            "conflicting_patients": 6,
            "department": 2,
            "diagnosis_chapter": 2,
            "encounter_of_other_patient": 1,
            "sex": 1,
        },
    ),
    "mimic4": Family(
        schema=MIMIC4,
        export={
            "discharge": [_note4("1", "0020", "2180-05-08 00:00:00", "DS"), _note4("2", "20", "2180-05-08", "DS")],
            "radiology": [
                _note4("1", "0020", "2180-05-06 09:59:59", "RR"),
                _note4("2", "0020", "2180-05-06 10:00:00", "RR"),
                _note4("3", None, "2180-05-06 09:00:00", "RR"),
            ],
            "discharge_detail": [{"note_id": "7-DS-1", "field_name": "author", "field_value": "1"}],
            "services": [{"hadm_id": "0020", "transfertime": "2180-05-06 10:00:00", "curr_service": "MED"}],
            "transfers": [
                {
                    "subject_id": "007",
                    "hadm_id": "0020",
                    "transfer_id": "3",
                    "eventtype": "ED",
                    "careunit": "Emergency Department",
                    "intime": "2180-05-06 08:00:00",
                    "outtime": "2180-05-06 12:00:00",
                }
            ],
            "patients": [{"subject_id": "007", "gender": "M", "anchor_age": "52", "anchor_year": "2172"}],
            "diagnoses_icd": [{"hadm_id": "0020", "seq_num": "1", "icd_code": "I2510", "icd_version": "10"}],
        },
        records={
            "7-DS-1": ("MED", "007", "0020", "60-69", "icd10-09", "DS", "male", "2180"),
            "7-DS-2": ("MED", "007", "0020", "60-69", "icd10-09", "DS", "male", "2180"),
            "7-RR-1": ("Emergency Department", "007", "0020", "60-69", "icd10-09", "RR", "male", "2180"),
            "7-RR-2": ("MED", "007", "0020", "60-69", "icd10-09", "RR", "male", "2180"),
            "7-RR-3": ("Emergency Department", "007", None, "60-69", None, "RR", "male", "2180"),
        },
        ledger=BuildLedger(num_read=5, num_kept=5, duplicates={}, rejected={}),
        unresolved={"diagnosis_chapter": 1},
    ),
    "omop": Family(
        schema=OMOP,
        export={
            "note": [
                _note5("1", visit_detail_id="50", visit_occurrence_id="40", provider_id="30"),
                _note5("2", visit_occurrence_id="40", provider_id="30", note_class_concept_id="9"),
                _note5("3", provider_id="30"),
                _note5("4", person_id="8", note_date="17.05.2019"),
            ],
            "visit_detail": [{"visit_detail_id": "50", "care_site_id": "1", "visit_occurrence_id": "40"}],
            "visit_occurrence": [{"visit_occurrence_id": "40", "care_site_id": "2"}],
            "provider": [{"provider_id": "30", "care_site_id": "3", "specialty_source_value": "Cardiology"}],
            "care_site": [
                {"care_site_id": number, "care_site_name": name}
                for number, name in (("1", "Ward, north"), ("2", "Clinic"), ("3", "Office"))
            ],
            "person": [{"person_id": "7", "gender_concept_id": "8532", "year_of_birth": "1950", "month_of_birth": "6"}],
            "concept": [{"concept_id": "44814637", "concept_name": "Discharge summary"}],
        },
        records={
            "1": ("Ward, north", "7", "40", "60-69", "Discharge summary", "female", "2019"),
            "2": ("Clinic", "7", "40", "60-69", "9", "female", "2019"),
            "3": ("Office", "7", None, "60-69", "Discharge summary", "female", "2019"),
            "4": ("UNKNOWN", "8", None, None, "Discharge summary", None, None),
        },
        ledger=BuildLedger(num_read=4, num_kept=4, duplicates={}, rejected={}),
        unresolved={"age_band": 1, "department": 1, "sex": 1, "year": 1},
    ),
}


def check(made: Build, family: Family) -> None:
    """The build holds what it must."""
    features = [f"feature.{name}" for name in made.manifest.features if name != "length_band"]
    records = records_of(made)
    named = {row["raw_id"]: (row["department"], *(row[name] for name in features)) for row in records}
    assert named == {key: (cells[0], *cells[3:]) for key, cells in family.records.items()}
    for role, place in (("patient_id", 1), ("encounter_id", 2)):
        pairs = {(family.records[row["raw_id"]][place], row[role]) for row in records}
        assert len(pairs) == len(dict(pairs)) == len({digest for _, digest in pairs})
        assert dict(pairs).get(None) is None
    assert made.manifest.ledger == family.ledger
    assert made.manifest.unresolved == family.unresolved


@pytest.mark.parametrize("name", FAMILIES)
def test_an_export_is_recognised_and_built(name: str, tmp_path: Path, scheduler: str) -> None:
    """By its files alone; what was recognised and what is of no use is said."""
    family = FAMILIES[name]
    source = write_export(tmp_path / "in", family.schema, family.export, suffix=".csv")

    done = run_sharding(
        *("build", source, "--out", tmp_path / "corpus", "--scheduler", scheduler, "--max-rejects", "100%", "--json")
    )

    assert done.returncode == 0, done.stderr
    assert f"source: {name}" in done.stderr
    ignored = {"mimic3": "PROCEDURES_ICD.csv", "mimic4": "discharge_detail.csv", "omop": ""}[name]
    assert ignored in done.stderr
    assert json.loads(done.stdout)
    check(opened(tmp_path / "corpus"), family)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_format_gives_the_same_build(name: str, tmp_path: Path, scheduler: str) -> None:
    """Files of CSV, compressed CSV, JSON lines and Parquet hold the same records, shard by shard."""
    family = FAMILIES[name]
    made = []

    for suffix in SUFFIXES:
        folder = write_export(tmp_path / f"in{suffix}", family.schema, family.export, suffix=suffix)
        made.append(build([folder], tmp_path / f"out{suffix}", scheduler, columns={}, source=name))

    for each in made:
        check(each, family)
    digests = {tuple(shard.content_digest for shard in each.manifest.shards) for each in made}
    assert len(digests) == 1


def test_notes_of_a_patient_stay_together_in_order_of_time(tmp_path: Path, scheduler: str) -> None:
    """With groups asked for; a note of a day without a time is the last one of that day."""
    times = ["2150-03-02 10:00:00", None, "2150-03-01 23:00:00", "2150-03-02 09:00:00"]
    notes = [_note3(f"{time}/{patient}", None, time, SUBJECT_ID=patient) for time in times for patient in "123456"]
    folder = write_export(tmp_path / "in", MIMIC3, {"NOTEEVENTS": notes}, suffix=".csv")

    made = build([folder], tmp_path / "out", scheduler, columns={}, source="mimic3", group="patient", target_tokens=60)

    assert len(made.manifest.shards) > 1
    shards = [read_shard(made, shard) for shard in made.manifest.shards]
    found = [[raw_id.split("/") for raw_id in shard.column("raw_id").to_pylist()] for shard in shards]
    runs = [(patient, [time for time, _ in run]) for ids in found for patient, run in groupby(ids, key=itemgetter(1))]
    assert sorted(patient for patient, _ in runs) == list("123456")
    assert all(order == [times[2], times[3], times[0], str(times[1])] for _, order in runs)
