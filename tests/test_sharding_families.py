"""Files of MIMIC and OMOP exports are recognised for what they are, in any case and in parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.seals import label
from sharding.config import ShardingSettings
from sharding.inputs import SourceFile, find_files
from sharding.recognition import notices_of, recognise
from sharding.sources import mimic3, mimic4, omop
from sharding.sources.adapter import NOTES
from sharding.sources.families import TableFamily
from sharding.sources.formats import seen_format
from sharding.sources.source import Header
from tests.builds import csv_bytes
from tests.exports import MIMIC3, MIMIC4, OMOP

NOTE_FILES = {"NOTEEVENTS", "discharge", "radiology", "note"}
IGNORED_FILES = {"PROCEDURES_ICD", "procedures_icd", "discharge_detail"}
FAMILIES: list[tuple[TableFamily, dict[str, str]]] = [
    (mimic3.ADAPTER, MIMIC3),
    (mimic4.ADAPTER, MIMIC4),
    (omop.ADAPTER, OMOP),
]
FILES = [(adapter, name, columns) for adapter, schema in FAMILIES for name, columns in schema.items()]


def header_of(columns: str, *, closed: bool = True) -> Header:
    """A header with these columns."""
    return Header(tuple(columns.split()), closed=closed)


@pytest.mark.parametrize("change", [str.lower, str.upper])
@pytest.mark.parametrize(("adapter", "name", "columns"), FILES)
def test_each_table_is_recognised(adapter: TableFamily, name: str, columns: str, change: type[str]) -> None:
    """By the columns of the public schema in either case; what is not needed is not taken for a table."""
    use = adapter.use_of(name.lower(), header_of(change(columns)))

    expected = NOTES if name in NOTE_FILES else name.lower()
    assert use == (None if name in IGNORED_FILES else expected)


@pytest.mark.parametrize(("adapter", "name", "columns"), FILES)
def test_notes_of_another_family_are_no_notes(adapter: TableFamily, name: str, columns: str) -> None:
    """No file is a file of notes in two families."""
    families = [other.name for other, _ in FAMILIES if other.use_of(name.lower(), header_of(columns)) == NOTES]

    assert families == ([adapter.name] if name in NOTE_FILES else [])


@pytest.mark.parametrize("stem", ["services_1", "services-00001-of-00004", "services.part2", "services.0"])
def test_a_table_may_be_in_parts(stem: str) -> None:
    """A part's number may follow the name."""
    assert mimic4.ADAPTER.use_of(stem, header_of(MIMIC4["services"])) == "services"


@pytest.mark.parametrize("stem", ["services_old", "service", "my_services", "services2go", "transfers", ""])
def test_another_name_is_no_side_table(stem: str) -> None:
    """Whatever its columns."""
    assert mimic4.ADAPTER.use_of(stem, header_of(MIMIC4["services"])) is None


@pytest.mark.parametrize("stem", ["part-0001", "export", "x"])
def test_notes_may_have_any_name(stem: str) -> None:
    """Their columns are like no others."""
    assert mimic3.ADAPTER.use_of(stem, header_of(MIMIC3["NOTEEVENTS"])) == NOTES


def test_a_side_table_without_its_columns_is_none() -> None:
    """The name alone is not enough."""
    assert mimic4.ADAPTER.use_of("services", header_of("subject_id hadm_id transfertime")) is None


@given(st.data())
def test_a_side_table_says_all_columns_that_it_lacks(data: st.DataObject) -> None:
    """Those that it cannot do without, whatever their case; a file that is complete or has another name lacks none."""
    adapter, kind = data.draw(st.sampled_from([(adapter, kind) for adapter, _ in FAMILIES for kind in adapter.kinds]))
    gone = data.draw(st.sets(st.sampled_from(kind.required)))
    columns = [name.upper() for name in kind.required if name not in gone]
    stem = kind.stem or "part-0001"

    found = adapter.lacking(stem, Header(tuple(columns), closed=True))

    assert found == (tuple(name for name in kind.required if name in gone) if kind.stem else ())
    assert adapter.lacking(f"{stem}_old", Header(tuple(columns), closed=True)) == ()


def write_csv(folder: Path, **columns: str) -> list[SourceFile]:
    """Files of one row of made cells under these columns, by name."""
    for name, header in columns.items():
        (folder / f"{name}.csv").write_bytes(csv_bytes([tuple("cell" for _ in header.split())], header.split()))
    return find_files([str(folder)], "auto").files


@pytest.mark.parametrize("source", ["auto", "mimic4"])
def test_side_tables_without_their_columns_are_refused_together(tmp_path: Path, source: str) -> None:
    """By file and column, with the cure, before anything is read; no cell is said."""
    files = write_csv(
        tmp_path, radiology=MIMIC4["radiology"], services="subject_id hadm_id", transfers_2="hadm_id intime CAREUNIT"
    )

    with pytest.raises(UsageError) as caught:
        recognise(files, ShardingSettings.model_validate({"columns": {}, "source": source}))

    message = str(caught.value)
    assert f"{label(tmp_path / 'services.csv')}: no column 'transfertime', 'curr_service'" in message
    assert f"{label(tmp_path / 'transfers_2.csv')}: no column 'outtime'" in message
    assert "leave it out" in message
    assert "cell" not in message


def test_the_side_table_of_the_other_edition_is_refused(tmp_path: Path) -> None:
    """Diagnoses of MIMIC-III say nothing of notes of MIMIC-IV, though the names are alike."""
    files = write_csv(tmp_path, radiology=MIMIC4["radiology"], diagnoses_icd=MIMIC3["DIAGNOSES_ICD"])

    with pytest.raises(UsageError, match=r"no column 'icd_code', 'icd_version'; a file of such a name .* mimic4"):
        recognise(files, ShardingSettings.model_validate({"columns": {}}))


def test_json_lines_are_told_by_their_first_lines(tmp_path: Path) -> None:
    """A column that none of them has is missing."""
    write_csv(tmp_path, radiology=MIMIC4["radiology"])
    (tmp_path / "services.jsonl").write_text('{"subject_id": "1"}\n')
    files = find_files([str(tmp_path)], "auto").files

    with pytest.raises(UsageError, match=r"services.jsonl: no column 'hadm_id', 'transfertime', 'curr_service' in its"):
        recognise(files, ShardingSettings.model_validate({"columns": {}}))


def test_json_lines_without_a_line_lack_nothing(tmp_path: Path) -> None:
    """They say nothing of anybody, and are named with the files of no use."""
    write_csv(tmp_path, radiology=MIMIC4["radiology"])
    (tmp_path / "services.jsonl").touch()

    found = recognise(find_files([str(tmp_path)], "auto").files, ShardingSettings.model_validate({"columns": {}}))

    assert [file.path.name for file in found.ignored] == ["services.jsonl"]


def test_files_that_are_named_like_side_tables_hinder_no_plain_table(tmp_path: Path) -> None:
    """With the column of the note named, every file is one; and a name that is only alike is no side table's."""
    plain, family = tmp_path / "plain", tmp_path / "family"
    plain.mkdir()
    family.mkdir()
    tables = write_csv(plain, services="note", patients="note", person="note")
    files = write_csv(family, radiology=MIMIC4["radiology"], services_old="note", person="note")

    found = recognise(tables, ShardingSettings.model_validate({"columns": {"text": "note"}}))
    told = recognise(files, ShardingSettings.model_validate({"columns": {}}))

    assert [file.path.stem for file in found.files] == ["patients", "person", "services"]
    assert [file.path.stem for file in told.ignored] == ["person", "services_old"]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\r\n"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_tabs_under_the_name_of_csv_are_seen(tmp_path: Path, start: bytes, newline: bytes) -> None:
    """The vocabulary files of OMOP come so; each one is said, its rows may hold commas, and CSV beside it stays."""
    (tmp_path / "note.csv").write_bytes(csv_bytes([tuple("x" for _ in OMOP["note"].split())], OMOP["note"].split()))
    rows = [OMOP["concept"].upper().split(), ["1", "Heart, liver", *"xxxxxxxx"]]
    (tmp_path / "CONCEPT.csv").write_bytes(start + newline.join("\t".join(row).encode() for row in rows))

    found = recognise(find_files([str(tmp_path)], "auto").files, ShardingSettings.model_validate({"columns": {}}))

    assert [(file.path.name, file.format, file.use) for file in found.files] == [
        ("CONCEPT.csv", "tsv", "concept"),
        ("note.csv", "csv", NOTES),
    ]
    assert notices_of(found)[-1].endswith("tabs and no comma in their first lines: CONCEPT.csv")


@pytest.mark.parametrize("line", ["concept_id,concept\tname", "concept_id"])
def test_other_first_lines_leave_csv_as_it_is(line: str) -> None:
    """A comma, or no tab; later lines do not count."""
    found = [seen_format(file_format, f"{line}\na\tb\n".encode()) for file_format in ("csv", "jsonl")]

    assert found == ["csv", "jsonl"]


def test_a_format_that_was_asked_for_goes_for_every_file(tmp_path: Path) -> None:
    """With ``--format csv`` a line of tabs is one column."""
    write_csv(tmp_path, radiology=MIMIC4["radiology"])
    (tmp_path / "patients.csv").write_text("\t".join(MIMIC4["patients"].split()) + "\n")
    settings = ShardingSettings.model_validate({"columns": {}, "format": "csv"})

    with pytest.raises(UsageError, match="no column 'subject_id'"):
        recognise(find_files([str(tmp_path)], "csv").files, settings)


@given(st.data())
def test_first_lines_of_json_need_not_have_what_may_be_null(data: st.DataObject) -> None:
    """Such a column is expected in the case of the others; in a header that is closed it is missing."""
    kinds = [(adapter, kind) for adapter, _ in FAMILIES for kind in adapter.kinds if kind.nullable]
    adapter, kind = data.draw(st.sampled_from(kinds))
    gone = data.draw(st.sets(st.sampled_from(kind.nullable), min_size=1))
    change = data.draw(st.sampled_from([str.lower, str.upper]))
    seen, closed = (
        Header(tuple(change(name) for name in kind.required if name not in gone), closed=closed)
        for closed in (False, True)
    )

    uses = [adapter.use_of(str(kind.stem), header) for header in (seen, closed)]

    assert uses == [kind.use, None]
    assert {adapter.columns(kind.use, seen)[name] for name in gone} == set(map(change, gone))
    assert set(adapter.lacking(str(kind.stem), seen)) == gone


def test_what_first_lines_of_json_do_not_have_is_said(tmp_path: Path) -> None:
    """The file is read, since a later line may have it, and the column is named; what is never null is an error."""
    write_csv(tmp_path, note=OMOP["note"])
    (tmp_path / "visit_detail.jsonl").write_text('{"visit_detail_id": 50, "person_id": 5}\n')
    settings = ShardingSettings.model_validate({"columns": {}})

    found = recognise(find_files([str(tmp_path)], "auto").files, settings)

    assert [file.use for file in found.files] == [NOTES, "visit_detail"]
    assert notices_of(found)[1:] == [
        "inputs: no care_site_id in the first lines of visit_detail.jsonl; null unless a line has it"
    ]
    (tmp_path / "care_site.jsonl").write_text('{"care_site_name": "Ward"}\n')
    with pytest.raises(UsageError, match="no column 'care_site_id' in its first lines"):
        recognise(find_files([str(tmp_path)], "auto").files, settings)


@given(st.data())
def test_columns_are_found_in_any_case_and_order(data: st.DataObject) -> None:
    """Each name leads to the file's own column, and only columns that the file has are named."""
    adapter, name, columns = data.draw(st.sampled_from([file for file in FILES if file[1] not in IGNORED_FILES]))
    changed = [data.draw(st.sampled_from([str.lower, str.upper, str.title]))(column) for column in columns.split()]
    shuffled = tuple(data.draw(st.permutations(changed)))
    use = adapter.use_of(name.lower(), Header(shuffled, closed=True))

    found = adapter.columns(str(use), Header(shuffled, closed=True))

    assert set(found.values()) <= set(shuffled)
    assert all(column.lower() == role for role, column in found.items())


@pytest.mark.parametrize(("change", "column"), [(str.lower, "hadm_id"), (str.upper, "HADM_ID")])
def test_a_column_that_may_still_come_is_expected_in_the_case_of_the_others(change: type[str], column: str) -> None:
    """In JSON lines a key that is often null may not be among the first lines."""
    seen = header_of(change("note_id subject_id note_type text"), closed=False)

    found = mimic4.ADAPTER.columns(NOTES, seen)

    assert found["hadm_id"] == column


def test_of_two_columns_that_differ_in_case_the_first_counts() -> None:
    """The choice does not depend on anything but the file."""
    found = mimic4.ADAPTER.columns(NOTES, header_of("TEXT note_id subject_id note_type text"))

    assert found["text"] == "TEXT"
