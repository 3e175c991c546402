"""Cells become departments, features and times row by row; what cannot be read is null and counted."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sharding.config import ShardingSettings
from sharding.resolving import resolve

SETTINGS = ShardingSettings.model_validate(
    {
        "columns": {
            "text": "text",
            "department": "unit",
            "patient": "mrn",
            "time": "at",
            "features": {"year": "year(at)", "age": "age_band(years)", "chapter": "icd_chapter(code)", "kind": "kind"},
        },
        "group": "patient",
        "departments": {"Cardiology": "CARD"},
        "on_unknown": "unknown",
    }
)
NAMES = ["text", "department", "patient", "time", "feature.year", "feature.age", "feature.chapter", "feature.kind"]
CELLS = st.tuples(
    st.just("note"),
    st.sampled_from([None, "", "cardiology", "Derma"]),
    st.sampled_from([None, "1"]),
    *[st.sampled_from([None, "2019-05-17T10:00", "yesterday"])] * 2,
    st.sampled_from([None, "47", "old"]),
    st.sampled_from([None, "I10", "?"]),
    st.sampled_from([None, "", "a"]),
)


def table_of(rows: list[tuple[str | None, ...]]) -> pa.Table:
    """Rows of roles."""
    return pa.table({name: pa.array([row[i] for row in rows], pa.large_string()) for i, name in enumerate(NAMES)})


@given(st.lists(CELLS, min_size=1))
def test_rows_are_resolved_one_by_one(rows: list[tuple[str | None, ...]]) -> None:
    """A table is its rows one by one, and so are the counts."""
    whole = resolve(table_of(rows), SETTINGS)

    single = [resolve(table_of([row]), SETTINGS) for row in rows]
    assert whole.table.to_pylist() == [part.table.to_pylist()[0] for part in single]
    assert whole.times.to_pylist() == [part.times[0].as_py() for part in single]
    assert whole.unresolved == sum((part.unresolved for part in single), whole.unresolved.__class__())


@given(st.lists(CELLS, min_size=1))
def test_each_lost_value_is_counted(rows: list[tuple[str | None, ...]]) -> None:
    """What was there and is null afterwards; a column as it is loses none."""
    found = resolve(table_of(rows), SETTINGS)

    before, after = table_of(rows), found.table
    for name in ("year", "age", "chapter", "kind"):
        lost = after.column(f"feature.{name}").null_count - before.column(f"feature.{name}").null_count
        assert found.unresolved[name] == lost
    assert found.unresolved["time"] == found.times.null_count - before.column("time").null_count
    assert found.unresolved["unlisted_department"] == sum(row[1] == "Derma" for row in rows)
