"""Whatever cells an export holds, every note becomes a record or a reject, and every gap is counted."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.sources.adapter import Adapter
from sharding.sources.adapters import ADAPTERS
from tests.exports import MIMIC3, MIMIC4, OMOP, adapt

# Numbers at the border of int64, dates at the border of the calendar, and text of any kind; few, so that keys meet.
CELLS = st.one_of(
    st.sampled_from(
        [
            *(
                None,
                "",
                " ",
                "1",
                "01",
                "1.0",
                "-1",
                "9223372036854775807",
                "9" * 30,
                "1e308",
                "nan",
                "8507",
                "discharge",
            ),
            *(
                "0001-01-01",
                "9999-12-31",
                "0001-01-01T00:00:00+14:00",
                "9999-12-31 23:59:59-14:00",
                "2150-03-02 10:00:00",
            ),
        ]
    ),
    st.text(max_size=4),
)
FAMILIES: list[tuple[Adapter, Mapping[str, str], str]] = [
    (ADAPTERS["mimic3"], MIMIC3, "NOTEEVENTS"),
    (ADAPTERS["mimic4"], MIMIC4, "radiology"),
    (ADAPTERS["omop"], OMOP, "note"),
]


@pytest.mark.parametrize(("adapter", "schema", "notes"), FAMILIES)
@given(data=st.data())
def test_no_cell_is_an_error(adapter: Adapter, schema: Mapping[str, str], notes: str, data: st.DataObject) -> None:
    """Records and rejects are the notes; the columns are the roles, all text; ids and texts are untouched."""
    export = {
        name: data.draw(
            st.lists(
                st.fixed_dictionaries(dict.fromkeys(columns.split(), CELLS)), min_size=int(name == notes), max_size=3
            ),
            label=name,
        )
        for name, columns in schema.items()
        if name == notes or name not in ("discharge", "discharge_detail")
    }

    found = adapt(adapter, schema, export)

    roles = ["id", "text", "department", "patient", "encounter", "time"]
    assert found.table.column_names == [*roles, *(f"feature.{name}" for name in adapter.features)]
    assert set(found.table.schema.types) == {pa.large_string()}
    assert found.table.num_rows + found.rejected.total() == len(export[notes])
    if not found.rejected:
        columns = schema[notes].split()
        texts = [row[next(name for name in columns if name.lower() in ("text", "note_text"))] for row in export[notes]]
        assert found.table.column("id").to_pylist() == [row[columns[0]] for row in export[notes]]
        assert found.table.column("text").to_pylist() == texts
    assert found.table.column("department").null_count == 0
    for name, count in found.unresolved.items():
        assert 0 < count <= found.table.num_rows, name
