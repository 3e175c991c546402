"""Families of files in a build: recognised and said, side files sealed, whatever is unknown counted, nothing lost."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.documents import read_document
from schemas.errors import DataError, UsageError
from schemas.folders import open_build
from schemas.ledgers import SideLedger
from schemas.manifests import Refusal
from schemas.shard_files import read_shard
from schemas.verification import verify_build
from sharding.build import build_corpus, plan_corpus, survey_blocks
from sharding.cli import cli
from sharding.cluster import connected
from sharding.config import ShardingSettings
from sharding.inputs import find_files
from sharding.lookups import LookupJob, SideFile, make_lookups, open_lookups
from sharding.preparation import prepare
from sharding.recognition import notices_of, recognise
from sharding.scratch_folders import make_folder
from tests.builds import COLUMNS, build, records_of, request, some_rows, write_rows
from tests.commands import run_command
from tests.fhir_exports import attachment, document, export, report, write_export, write_lines

EXPORT = export(num_patients=7, num_documents=60, version=4)


def _build(inputs: list[Path], corpus: Path, scheduler: str, **changes: Any) -> Any:
    return build(inputs, corpus, scheduler, columns={}, target_tokens=60, block_tokens=20, **changes)


@pytest.mark.parametrize("version", [4, 5])
def test_files_and_blocks_of_an_export_do_not_matter(tmp_path: Path, scheduler: str, version: int) -> None:
    """One file per type, many files per type, or all in one file, in blocks of any size: the same shards."""
    resources = export(num_patients=7, num_documents=60, version=version)
    single = write_export(tmp_path / "single", resources)
    many = write_export(tmp_path / "many", resources, num_files=3)
    mixed = write_lines(tmp_path / "mixed.ndjson", sorted(resources, key=lambda item: item["id"]))

    made = [
        _build([single], tmp_path / "one", scheduler),
        _build([many], tmp_path / "two", scheduler, block_bytes=1_000, source="fhir"),
        _build([mixed], tmp_path / "three", scheduler, block_bytes=700),
    ]

    assert len({item.manifest.content_digest for item in made}) == 1
    assert verify_build(made[1], deep=True)["records"] == 60
    assert made[0].manifest.unresolved == {}
    assert made[0].manifest.features == ["age_band", "length_band", "note_type", "sex", "year"]
    assert Counter(row["department"] for row in records_of(made[0])) == dict.fromkeys(
        ("Ward 0", "Ward 1", "Service 2", "Clinic 3", "class-4"), 12
    )


def test_side_files_are_inputs_that_hold_no_records(tmp_path: Path, scheduler: str) -> None:
    """Each is sealed in the manifest with no record read; another side file makes another build."""
    folder = write_export(tmp_path / "in", [*EXPORT, document("gone", status="entered-in-error")])
    before = _build([folder], tmp_path / "one", scheduler)
    patients = folder / "Patient.000.ndjson"
    patients.write_bytes(patients.read_bytes().splitlines(keepends=True)[0])

    after = _build([folder], tmp_path / "two", scheduler)

    assert sorted(item.num_read for item in before.manifest.inputs) == [0, 0, 0, 61]
    assert before.manifest.ledger.rejected == {"entered_in_error": 1}
    assert before.manifest.ledger.balances
    assert after.manifest.build_id != before.manifest.build_id
    assert after.manifest.unresolved == {"age_band": 51, "sex": 51}


def test_what_a_source_leaves_out_on_purpose_is_no_sign_of_bad_input(tmp_path: Path, scheduler: str) -> None:
    """Other formats, reports without text and marked errors are in the ledger, outside the limit of rejects."""
    formats = [
        {"contentType": "text/html", "data": "PGI+"},
        {"contentType": "text/plain", "data": "eA=="},
        {"contentType": "application/rtf", "data": "e1xydGY="},
    ]
    notes = [
        *(document(f"f{number}", contents=formats) for number in range(5)),
        *(report(f"r{number}", []) for number in range(20)),
        document("gone", status="entered-in-error"),
    ]
    bad = document("bad", contents=formats[2:])

    ledger = _build(
        [write_export(tmp_path / "in", notes)], tmp_path / "corpus", scheduler, max_rejects="0"
    ).manifest.ledger
    with pytest.raises(DataError, match="1 records rejected"):
        _build([write_export(tmp_path / "bad", [*notes, bad])], tmp_path / "other", scheduler, max_rejects="16%")

    assert (ledger.num_read, ledger.num_kept) == (36, 5)
    assert ledger.rejected == {"entered_in_error": 1, "no_text": 20, "other_format": 10}
    assert ledger.balances


def test_missing_side_files_leave_unknowns_that_are_counted(tmp_path: Path, scheduler: str) -> None:
    """Notes alone build too; departments and features that nobody knows are counted, also for duplicates."""
    folder = write_export(tmp_path / "in", [item for item in EXPORT if item["resourceType"] == "DocumentReference"])
    again = write_lines(tmp_path / "DocumentReference.again.ndjson", [EXPORT[4]])

    made = _build([folder, again], tmp_path / "corpus", scheduler)

    assert made.manifest.ledger.duplicates == {"identical": 1}
    assert made.manifest.unresolved == {"age_band": 61, "department": 37, "sex": 61}
    assert sum(row["department"] == "UNKNOWN" for row in records_of(made)) == 36


def test_the_commands_say_what_is_unknown_and_left_out(
    tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``build``, ``plan`` and ``inspect`` count unknown departments; a stray file is named; texts and names are not."""
    folder = write_export(tmp_path / "in", [item for item in EXPORT if item["resourceType"] != "Encounter"])
    (folder / "log.ndjson").write_text('{"eventId": "kickoff"}\n')
    out = ["--out", tmp_path / "corpus", "--scheduler", scheduler]

    planned = run_command(cli, ["plan", folder, *out], capsys)
    built = run_command(cli, ["build", folder, *out], capsys)
    shown = run_command(cli, ["inspect", tmp_path / "corpus"], capsys)
    told = json.loads(run_command(cli, ["inspect", tmp_path / "corpus", "--json"], capsys).out)

    assert [done.code for done in (planned, built, shown)] == [0, 0, 0]
    assert all("department unknown" in done.out for done in (planned, built, shown))
    assert told["unresolved"] == {"department": 24}
    assert "source: fhir; files: 1 of notes, 2 of resources" in built.err
    assert "left out: log.ndjson" in built.err
    assert not any(word in built.out + built.err for word in ("Ward", "note d", "Clinic"))


def test_groups_come_from_the_family(tmp_path: Path, scheduler: str) -> None:
    """``--group patient`` needs no mapping, and a patient's records of a department stay in one shard."""
    folder = write_export(tmp_path / "in", export(num_patients=7, num_documents=300, version=4))

    made = _build([folder], tmp_path / "corpus", scheduler, group="patient")

    shards = [read_shard(made, shard) for shard in made.manifest.shards]
    places = [
        {(row["department"], row["patient_id"]) for row in table.select(["department", "patient_id"]).to_pylist()}
        for table in shards
    ]
    assert sum(map(len, places)) == len(set().union(*places)) == 35
    assert len(shards) > 5


def test_departments_of_a_family_go_through_the_hospitals_table(tmp_path: Path, scheduler: str) -> None:
    """Spellings become codes; one that the table does not list is told from one that no side file tells."""
    folder = write_export(tmp_path / "in", [item for item in EXPORT if item["resourceType"] != "Encounter"])

    made = _build(
        [folder], tmp_path / "corpus", scheduler, departments={"ward 0": "W", "WARD 1": "W"}, on_unknown="unknown"
    )

    assert Counter(row["department"] for row in records_of(made)) == {"W": 24, "UNKNOWN": 36}
    assert made.manifest.unresolved == {"department": 24, "unlisted_department": 12}


def test_only_a_spelling_that_is_not_listed_fails_a_build(tmp_path: Path, scheduler: str) -> None:
    """A department that no side file tells is another matter, and the message says of how many records."""
    folder = write_export(tmp_path / "in", [item for item in EXPORT if item["resourceType"] != "Encounter"])
    wanted = request([folder], tmp_path / "c", scheduler, columns={}, departments={"ward 0": "W"}, on_unknown="fail")
    clinics = {f"clinic {number}": "C" for number in range(5)}
    listed = wanted.settings.model_copy(update={"departments": {"ward 0": "W", "ward 1": "W", **clinics}})

    with pytest.raises(DataError, match=r"records have a department that is in no entry .*for 24 more") as caught:
        build_corpus(wanted)
    made, _ = build_corpus(replace(wanted, settings=listed))

    assert "ward" not in str(caught.value)
    assert made.manifest.unresolved == {"department": 24}


def test_damaged_lookups_are_made_again(tmp_path: Path, scheduler: str) -> None:
    """A resumed build uses a lookup table only if it is, byte for byte, what was sealed."""
    folder = write_export(tmp_path / "in", EXPORT)
    wanted = request([folder], tmp_path / "corpus", scheduler, columns={})
    prepared = prepare(wanted)
    columns = prepared.recognised.side_columns
    sides = [
        SideFile(file, file.path, columns[file.path]) for file in prepared.recognised.files if file.path in columns
    ]
    job = LookupJob("fhir", sides, prepared.scratch, 1_000)
    make_folder(prepared.scratch)
    made = make_lookups(job)
    path = next((prepared.scratch.folder / "lookups").glob("*.arrow"))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    before = {item: item.stat().st_mtime_ns for item in path.parent.iterdir()}

    again = make_lookups(job)
    after = {item: item.stat().st_mtime_ns for item in path.parent.iterdir()}
    kept = make_lookups(job)

    assert again == made == kept
    assert path.read_bytes() == content
    assert all(after[item] > old for item, old in before.items())
    assert {item: item.stat().st_mtime_ns for item in path.parent.iterdir()} == after
    tables = open_lookups(prepared.scratch, sorted(made.tables))
    assert {name: table.num_rows for name, table in tables.items()} == {
        "Binary": 0,
        "Encounter": 5,
        "Organization": 5,
        "Patient": 7,
        "identifiers": 10,
        "files": 0,
    }


def test_rows_of_side_files_that_cannot_be_read_are_counted(
    tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no records: the manifest counts them beside the ledger, by reason and without a word of them."""
    folder = write_export(tmp_path / "in", EXPORT)
    patients = folder / "Patient.000.ndjson"
    patients.write_bytes(patients.read_bytes() + b'{"resourceType": "Patient", "id": "secret"\n')
    wanted = request([folder], tmp_path / "corpus", scheduler, columns={}, max_rejects="6%")

    plan = plan_corpus(wanted).plan
    made, _ = build_corpus(wanted)
    shown = run_command(cli, ["inspect", tmp_path / "corpus"], capsys)

    assert made.manifest.ledger.rejected == {}
    assert made.manifest.side_rows == plan.side_rows == SideLedger(num_read=18, rejected={"malformed": 1})
    assert shown.out.splitlines()[3:5] == [f"rows of side files{18:>22}", f"side row: malformed{1:>21}"]
    assert verify_build(made, deep=True)["records"] == 60


def test_too_many_rows_of_side_files_that_cannot_be_read_stop_the_build(
    tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against their own number, whatever that of the notes is; the message names the file and quotes no row."""
    folder = write_export(tmp_path / "in", EXPORT)
    patients = folder / "Patient.000.ndjson"
    patients.write_bytes(patients.read_bytes() + b'{"resourceType": "Patient", "id": "withheld"\n')
    out = ["--out", tmp_path / "corpus", "--scheduler", scheduler, "--max-rejects", "5%"]

    done = run_command(cli, ["build", folder, *out], capsys)

    assert done.code == 65
    (refusal,) = (tmp_path / "corpus" / "refused").iterdir()
    assert done.err.splitlines()[-1].endswith(
        "in/Patient.000.ndjson: 1 of 18 rows of side files rejected (1 malformed), at most 5% are allowed; "
        f"mend the files, or raise --max-rejects; the ledger is in corpus/refused/{refusal.name}"
    )
    assert read_document(refusal, Refusal).limit == "max_rejects_of_side_rows"
    assert "withheld" not in done.err
    assert not (tmp_path / "corpus" / "CURRENT").exists()


def test_texts_in_binaries_are_read_from_where_they_stand(tmp_path: Path, scheduler: str) -> None:
    """An export whose notes are all by url gives the same shards as one that holds them, also with the files moved."""
    binaries, notes = [], []
    for item in EXPORT:
        if item["resourceType"] == "DocumentReference":
            held = item["content"][0]["attachment"]
            binaries.append({"resourceType": "Binary", "id": f"b{item['id']}", **held})
            item = {**item, "content": [{"attachment": {"url": f"Binary/b{item['id']}"}}]}
        notes.append(item)
    apart = write_export(tmp_path / "apart", [*binaries, *notes], num_files=2)
    coded = tmp_path / "coded"
    coded.mkdir()
    for path in apart.iterdir():
        (coded / path.name).write_bytes(path.read_bytes().decode().encode("utf-16"))

    one = _build([write_export(tmp_path / "whole", EXPORT)], tmp_path / "one", scheduler)
    plan_corpus(request([apart], tmp_path / "two", scheduler, columns={}, target_tokens=60, block_tokens=20))
    moved = apart.rename(tmp_path / "moved")
    two = _build([moved], tmp_path / "two", scheduler)
    three = _build([coded], tmp_path / "three", scheduler, encoding="utf-16", block_bytes=900)

    assert one.manifest.content_digest == two.manifest.content_digest == three.manifest.content_digest
    assert two.manifest.ledger.num_kept == 60


def test_a_survey_cuts_notes_only(tmp_path: Path, scheduler: str) -> None:
    """Side files have no blocks, whatever their size."""
    folder = write_export(tmp_path / "in", EXPORT)
    wanted = request([folder], tmp_path / "corpus", scheduler, columns={}, block_bytes=100)
    prepared = prepare(wanted)

    with connected(wanted.cluster, prepared.scratch.workers()) as cluster:
        survey = survey_blocks(wanted, prepared, cluster)

    assert {prepared.sealed[block.file].file.use for block in survey.blocks} == {"notes"}
    assert len(survey.files) == 4


def test_encodings_and_compression_go_for_side_files_too(tmp_path: Path, scheduler: str) -> None:
    """An export in UTF-16, or compressed, gives the same records as plain UTF-8."""
    plain = write_export(tmp_path / "plain", EXPORT)
    coded = tmp_path / "coded"
    coded.mkdir()
    for path in plain.iterdir():
        (coded / path.name).write_bytes(path.read_bytes().decode().encode("utf-16"))
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in plain.iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))

    one = _build([plain], tmp_path / "one", scheduler)
    two = _build([coded], tmp_path / "two", scheduler, encoding="utf-16")
    three = _build([packed], tmp_path / "three", scheduler)

    assert one.manifest.content_digest == two.manifest.content_digest == three.manifest.content_digest
    assert three.manifest.unresolved == {}


def test_a_mapped_note_column_makes_a_table(tmp_path: Path) -> None:
    """With --text the files are plain tables, whatever they look like; auto and table are one build."""
    path = write_lines(tmp_path / "DocumentReference.ndjson", [document("d")])
    files = find_files([str(path)], "auto").files

    found = [
        recognise(files, ShardingSettings.model_validate({"columns": {"text": "id"}, "source": source}))
        for source in ("auto", "table")
    ]

    assert found[0] == found[1]
    assert found[0].settings.source == "table"
    assert notices_of(found[0]) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "--text"),
        ({"source": "fhir"}, "none of the 1 files holds notes of source fhir"),
    ],
)
def test_files_of_no_family_are_refused_with_the_cure(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    """No note column and no family: what to give is said, and no cell is quoted."""
    files = find_files([str(write_rows(tmp_path / "in.csv", some_rows(3)))], "auto").files

    with pytest.raises(UsageError, match=message) as caught:
        recognise(files, ShardingSettings.model_validate({"columns": {}, **settings}))

    assert "note 1" not in str(caught.value)


@pytest.mark.parametrize("source", ["auto", "mimic4"])
def test_a_file_whose_first_line_outgrows_the_head_is_never_left_out_in_silence(tmp_path: Path, source: str) -> None:
    """Alone or beside files that are recognised, it stops the build by its name; what FHIR can read is read."""
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"text": "secret " * 200_000, "note_id": "1", "subject_id": "2", "note_type": "DS"}))
    beside = tmp_path / "notes.jsonl"
    beside.write_text(json.dumps({"text": "x", "note_id": "1", "subject_id": "2", "note_type": "DS"}))
    fhir = tmp_path / "fhir.ndjson"
    fhir.write_text(
        json.dumps({"content": [{"attachment": attachment("x" * 1_000_000)}], **document("d", content=None)})
    )
    settings = ShardingSettings.model_validate({"columns": {}, "source": source})

    for paths in ([long], [long, beside]):
        with pytest.raises(DataError, match=r"long\.jsonl: its first line") as caught:
            recognise(find_files([str(path) for path in paths], "auto").files, settings)
        assert "secret" not in str(caught.value)

    asked = settings.model_copy(update={"source": "fhir"})
    assert [file.use for file in recognise(find_files([str(fhir)], "auto").files, asked).files] == ["mixed"]


def test_a_single_record_without_a_final_newline_is_recognised(tmp_path: Path) -> None:
    """The last line of a head that holds the whole file counts."""
    path = tmp_path / "notes.jsonl"
    path.write_text(json.dumps({"note_id": "1", "subject_id": "2", "note_type": "DS", "text": "x"}))
    settings = ShardingSettings.model_validate({"columns": {}})

    found = recognise(find_files([str(path)], "auto").files, settings)

    assert (found.settings.source, [file.use for file in found.files]) == ("mimic4", ["notes"])


@pytest.mark.parametrize("source", [["--source", "fhir"], []])
def test_mappings_beside_a_family_are_refused(
    tmp_path: Path, source: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 names the flags and the features that the family makes."""
    path = write_lines(tmp_path / "DocumentReference.ndjson", [document("d")])
    flags = ["--patient", "mrn", "--feature", "unit=ward", *source]

    done = run_command(cli, ["build", path, "--out", tmp_path / "corpus", *flags], capsys)

    assert done.code == 2
    assert all(part in done.err for part in ("--patient", "--feature unit=…", "age_band, note_type, sex, year"))


def test_an_unknown_source_is_refused_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 lists what there is."""
    done = run_command(cli, ["build", tmp_path, "--out", tmp_path / "corpus", "--source", "hl7"], capsys)

    assert done.code == 2
    assert all(name in done.err for name in ("auto", "table", "fhir", "mimic4", "omop"))


def test_a_source_in_the_settings_is_part_of_the_build(tmp_path: Path, scheduler: str) -> None:
    """Recognised or named, the manifest says the same family, and table builds say table."""
    folder = write_export(tmp_path / "in", EXPORT[:5])
    table = write_rows(tmp_path / "in.csv", some_rows(5))

    made = [_build([folder], tmp_path / name, scheduler, source=name) for name in ("auto", "fhir")]
    plain = build([table], tmp_path / "table", scheduler, columns=COLUMNS)

    assert made[0].manifest == made[1].manifest
    assert made[0].manifest.config["source"] == "fhir"
    assert plain.manifest.config["source"] == "table"


def test_synthea_builds_whole(shared: Path, tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A real export: 1,215 records with departments, and the stray log is named and ignored."""
    folder = shared / "data" / "synthea_fhir"

    done = run_command(cli, ["build", folder, "--out", tmp_path / "corpus", "--scheduler", scheduler], capsys)

    manifest = open_build(tmp_path / "corpus").manifest
    assert done.code == 0
    assert "log.ndjson" in done.err
    assert (manifest.ledger.num_read, manifest.ledger.num_kept) == (1215, 1215)
    assert manifest.unresolved == {}
    assert len(manifest.departments) > 20
