"""Files of MIMIC and OMOP exports are recognised for what they are, in any case and in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.sources import mimic3, mimic4, omop
from sharding.sources.adapter import NOTES, Adapter
from sharding.sources.source import Header
from tests.exports import MIMIC3, MIMIC4, OMOP

NOTE_FILES = {"NOTEEVENTS", "discharge", "radiology", "note"}
IGNORED_FILES = {"PROCEDURES_ICD", "procedures_icd", "discharge_detail"}
FAMILIES: list[tuple[Adapter, dict[str, str]]] = [
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
def test_each_table_is_recognised(adapter: Adapter, name: str, columns: str, change: type[str]) -> None:
    """By the columns of the public schema in either case; what is not needed is not taken for a table."""
    use = adapter.use_of(name.lower(), header_of(change(columns)))

    expected = NOTES if name in NOTE_FILES else name.lower()
    assert use == (None if name in IGNORED_FILES else expected)


@pytest.mark.parametrize(("adapter", "name", "columns"), FILES)
def test_notes_of_another_family_are_no_notes(adapter: Adapter, name: str, columns: str) -> None:
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
