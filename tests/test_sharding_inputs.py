"""Inputs are found, and whatever is wrong with them is said at once, without quoting a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import DataError, IntegrityError, UsageError
from sharding.config import ShardingSettings
from sharding.inputs import check_columns, find_files
from tests.builds import COLUMNS, some_rows, write_rows

SETTINGS = ShardingSettings.model_validate({"columns": {**COLUMNS, "features": {"sex": "gender"}}})


def test_names_that_find_nothing_are_all_reported(tmp_path: Path) -> None:
    """Absent files, empty globs and unknown suffixes come in one message."""
    (tmp_path / "notes.txt").write_text("x")

    with pytest.raises(UsageError) as caught:
        find_files([str(tmp_path / name) for name in ("no.csv", "*.parquet", "notes.txt")], "auto")

    message = str(caught.value)
    assert all(part in message for part in ("no.csv", "*.parquet", "notes.txt", "--format"))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_missing_columns_are_reported_all_at_once(tmp_path: Path, suffix: str) -> None:
    """Each file, each missing column with its setting, and the columns that were found."""
    paths = [write_rows(tmp_path / f"{name}{suffix}", some_rows(3), ("note_id", "x", "dept", "y")) for name in "ab"]
    files = find_files([str(path) for path in paths], "auto").files

    with pytest.raises(UsageError) as caught:
        check_columns(files, SETTINGS)

    message = str(caught.value)
    wanted = ("'note' (--text)", "'mrn' (--patient)", "'gender' (--feature sex=…)", "found are note_id, x, dept, y")
    assert all(part in message for part in (f"a{suffix}", f"b{suffix}", *wanted))


@pytest.mark.parametrize(
    "line",
    [
        '17,"Jane Roe has secret words",cardiology,0',
        "M1001,Smith John,Cardiology,Chest pain since monday with HIV",
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_file_without_a_header_is_not_quoted(tmp_path: Path, line: str, suffix: str) -> None:
    """The first record stands where names should; it is counted, not shown, even where its cells look like names."""
    path = tmp_path / f"in{suffix}"
    path.write_text(line.replace(",", "\t") if suffix == ".tsv" else line)
    files = find_files([str(path)], "auto").files

    with pytest.raises(UsageError, match="found are 4 others") as caught:
        check_columns(files, SETTINGS)

    secrets = ("M1001", "Jane", "secret", "Smith", "Chest", "HIV", "ardiology")
    assert not any(word in str(caught.value) for word in secrets)


def test_a_cell_that_is_no_name_hides_the_rest(tmp_path: Path) -> None:
    """A mapped column among the names does not open the door to cells that look like text."""
    path = tmp_path / "in.csv"
    path.write_text('note_id,"Jane: no fever, cough"\n')
    files = find_files([str(path)], "auto").files

    with pytest.raises(UsageError, match="2 that do not look like names") as caught:
        check_columns(files, SETTINGS)

    assert "Jane" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"id": "IDCANARY0", "text": "x"}, "IDCANARY0,Jane Roe,Cardiology"),
        ({"id": "a", "text": "note"}, "note,Zoë Roe"),
        ({"id": "a", "text": "note"}, "note,2nd visit of Roe"),
        ({"id": "a", "text": "note"}, "note,Roe: HIV"),
        ({"id": "a", "text": "note"}, "note," + "Roe " * 11),
    ],
)
def test_a_cell_that_is_given_as_a_column_opens_nothing(tmp_path: Path, columns: dict[str, str], line: str) -> None:
    """An id that is itself a cell of the first record, or a neighbour that is no identifier: only a count is said."""
    path = tmp_path / "in.csv"
    path.write_text(f"{line}\n", encoding="utf-8")
    files = find_files([str(path)], "auto").files

    with pytest.raises(UsageError, match=r"found are \d (others|that)") as caught:
        check_columns(files, ShardingSettings.model_validate({"columns": columns}))

    assert "Roe" not in str(caught.value)


def test_a_mapped_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    """Which one is meant cannot be known."""
    path = tmp_path / "in.csv"
    path.write_text("note_id,note,dept,mrn,gender,note\n")
    files = find_files([str(path)], "auto").files

    with pytest.raises(UsageError, match="more than one column for --text"):
        check_columns(files, SETTINGS)


def test_a_header_in_another_encoding_is_an_error(tmp_path: Path) -> None:
    """A UTF-16 file read as UTF-8 fails at once and names the setting."""
    path = tmp_path / "in.csv"
    path.write_bytes("note_id,note,dept,mrn,gender\n".encode("utf-16"))
    files = find_files([str(path)], "auto").files

    with pytest.raises(DataError, match="--encoding"):
        check_columns(files, SETTINGS)
    check_columns(files, SETTINGS.model_copy(update={"encoding": "utf-16"}))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_no_byte_order_mark_where_one_is_needed_is_an_error(tmp_path: Path, encoding: str) -> None:
    """A file that its encoding gives up is named, with the setting to change."""
    path = tmp_path / "in.csv"
    path.write_text("note_id,note,dept,mrn,gender\n")
    files = find_files([str(path)], "auto").files

    with pytest.raises(IntegrityError, match=r"in\.csv: not in encoding .* set --encoding"):
        check_columns(files, SETTINGS.model_copy(update={"encoding": encoding}))


def test_a_changed_input_is_noticed(tmp_path: Path) -> None:
    """A file written to during the build stops it."""
    path = write_rows(tmp_path / "in.csv", some_rows(2))
    (file,) = find_files([str(path)], "auto").files
    path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(DataError, match="changed while it was read"):
        file.check_unchanged()
