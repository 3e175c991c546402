"""The many spellings of a department become one code, and what the table does not know is treated as was asked."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.departments import fold, name_departments, num_clashes

TABLE = {"Cardiology": "CARD", "cardio ": "CARD", "心内科": "CARD", "ＩＣＵ": "ICU", "Onco": "ONC"}
NAMES = st.lists(
    st.one_of(st.none(), st.sampled_from([*TABLE, "CARDIOLOGY", " icu", "CARD", "card", "", " ", "UNKNOWN", "Derma"]))
)


def named(names: list[str | None], on_unknown: str = "keep", table: dict[str, str] = TABLE) -> tuple[list[str], int]:
    """Names by the table, and how many were unknown."""
    found = name_departments(pa.array(names, pa.large_string()), table, on_unknown)  # type: ignore[arg-type]
    return found.column.to_pylist(), found.num_unlisted


@given(NAMES, st.sampled_from(["keep", "unknown", "fail"]))
def test_each_name_is_looked_up_on_its_own(names: list[str | None], on_unknown: str) -> None:
    """A column is the names one by one, and so is the count; null stays null."""
    whole, num_unknown = named(names, on_unknown)

    single = [named([name], on_unknown) for name in names]
    assert whole == [codes[0] for codes, _ in single]
    assert num_unknown == sum(count for _, count in single)
    assert [name is None for name in names] == [code is None for code in whole]


@given(
    st.sampled_from([*TABLE]),
    st.sampled_from([str.upper, str.lower, str.title, str.swapcase]),
    st.text(" \t　", max_size=3),
)
def test_case_width_and_space_do_not_matter(name: str, changed: object, space: str) -> None:
    """Any writing of a known spelling has its code."""
    writing = space + changed(name) + space  # type: ignore[operator]

    assert named([writing], "fail") == ([TABLE[name]], 0)


@given(st.text(max_size=12))
def test_folding_twice_is_folding_once(text: str) -> None:
    """What two writings have in common has only one writing."""
    assert fold(fold(text)) == fold(text)


def test_an_exact_entry_goes_before_a_folded_one() -> None:
    """Two entries may differ in case alone if they have one code; and the value as it stands is looked up first."""
    table = {"er": "EMERGENCY", "Er": "EMERGENCY"}

    assert named(["er", "ER"], "fail", table) == (["EMERGENCY", "EMERGENCY"], 0)


def test_unknown_departments_are_kept_named_or_counted() -> None:
    """By choice; counted only if something is missing."""
    names: list[str | None] = ["Derma", "Cardiology", "Derma", None]

    assert named(names, "keep") == (["Derma", "CARD", "Derma", None], 0)
    assert named(names, "unknown") == (["UNKNOWN", "CARD", "UNKNOWN", None], 2)
    assert named(names, "fail") == (["Derma", "CARD", "Derma", None], 2)


@pytest.mark.parametrize("on_unknown", ["keep", "unknown", "fail"])
def test_null_and_empty_stay_distinct(on_unknown: str) -> None:
    """Neither is a spelling, unless the table has the empty one."""
    assert named([None, ""], on_unknown) == ([None, ""], 0)
    assert named([None, "", " "], on_unknown, {"": "NONE"}) == ([None, "NONE", "NONE"], 0)


@pytest.mark.parametrize("on_unknown", ["keep", "unknown", "fail"])
def test_a_code_stands_for_itself(on_unknown: str) -> None:
    """Data that was mapped before, and what an adapter could not find, are no unknown spellings."""
    assert named(["CARD", "UNKNOWN"], on_unknown) == (["CARD", "UNKNOWN"], 0)


def test_entries_that_clash_are_counted() -> None:
    """Spellings alike but for case, width and space need one code."""
    assert num_clashes(TABLE) == 0
    assert num_clashes({"icu": "A", "ＩＣＵ ": "A"}) == 0
    assert num_clashes({"icu": "A", "ＩＣＵ ": "B", "x": "C"}) == 2
