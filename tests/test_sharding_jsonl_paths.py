"""A column may lie in nested objects: its path is followed, and what it cannot mean is counted."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from sharding.config import ShardingSettings
from sharding.inputs import check_columns, find_files
from tests.builds import build, records_of
from tests.test_sharding_sources import read_all

PATH = "meta.author.dept"
COLUMNS = {"a": "id", "b": PATH}
NAMES = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=5)


def read_lines(folder: Path, *records: dict[str, Any]) -> tuple[list, dict[str, int]]:
    """(rows of id and ``PATH``, rejects) of some records."""
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    rows, rejected = read_all(path, columns=COLUMNS)
    return rows, dict(rejected)


@given(NAMES, st.one_of(st.none(), st.text(max_size=5)))
def test_any_path_through_objects_reaches_its_value(names: list[str], value: str | None) -> None:
    """However deep, the value is that of the object in which the path ends; null stays null."""
    record: Any = value
    for name in reversed(names):
        record = {name: record}

    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_text(json.dumps({"id": "1", "x": record}) + "\n")
        rows, rejected = read_all(path, columns={"a": "id", "b": ".".join(["x", *names])})

    assert rows == [("1", value)]
    assert not rejected


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({PATH: "literal", "meta": {"author": {"dept": "nested"}}}, "literal"),
        ({PATH: None, "meta": {"author": {"dept": "nested"}}}, None),
        ({"meta": {"author.dept": "inner literal", "author": {"dept": "nested"}}}, "inner literal"),
        ({"meta": {"author": {"dept": 7.50}}}, "7.5"),
        ({"meta": {"author": {}}}, None),
        ({"meta": {"author": None}}, None),
        ({"meta": None}, None),
        ({}, None),
    ],
)
def test_a_literal_key_wins_and_absence_is_null(tmp_path: Path, record: dict[str, Any], expected: str | None) -> None:
    """At each level the whole rest of the path is tried as a key first."""
    rows, rejected = read_lines(tmp_path, {"id": "1", **record})

    assert rows == [("1", expected)]
    assert rejected == {}


@pytest.mark.parametrize("inner", [[{"dept": "x"}], "text", 7, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_path_through_what_is_no_object_is_malformed(tmp_path: Path, inner: Any, depth: int) -> None:
    """A list or a plain value on the way is counted; the record beside it is kept."""
    wrong = {"meta": inner} if depth == 1 else {"meta": {"author": inner}}

    rows, rejected = read_lines(tmp_path, {"id": "1", **wrong}, {"id": "2", "meta": {"author": {"dept": "x"}}})

    assert rows == [("2", "x")]
    assert rejected == {"malformed": 1}


def test_suggestions_list_nested_columns_but_no_keys_that_are_data(tmp_path: Path) -> None:
    """Leaves in objects are said with their paths; keys with digits, which may be ids, and lists are not."""
    path = tmp_path / "in.jsonl"
    record = {"note_id": "1", "meta": {"author": {"dept": "x"}, "tags": ["a"]}, "by_patient": {"P10234": "y"}}
    path.write_text(json.dumps(record) + "\n")
    settings = ShardingSettings.model_validate({"columns": {"id": "meta.author.dept", "text": "body"}})

    with pytest.raises(UsageError) as caught:
        check_columns(find_files([str(path)], "auto").files, settings)

    assert str(caught.value).endswith("found are note_id, meta, by_patient, meta.author.dept")
    assert "'body' (--text)" in str(caught.value)
    assert "(--id)" not in str(caught.value)


def test_a_build_maps_nested_columns(tmp_path: Path, scheduler: str) -> None:
    """Department and text from inner objects; a mapped path that never occurs is an error."""
    path = tmp_path / "in.jsonl"
    records = [{"id": str(n), "meta": {"dept": f"d{n % 2}"}, "body": {"text": f"note {n}"}} for n in range(9)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    columns = {"id": "id", "text": "body.text", "department": "meta.dept"}

    made = build([path], tmp_path / "corpus", scheduler, columns=columns)
    with pytest.raises(UsageError, match=r"'meta\.ward' \(--patient\)"):
        build([path], tmp_path / "corpus", scheduler, columns={**columns, "patient": "meta.ward"})

    found = [(row["raw_id"], row["department"], row["text"]) for row in records_of(made)]
    assert found == [(str(n), f"d{n % 2}", f"note {n}") for n in range(9)]
