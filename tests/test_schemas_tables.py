"""Tables that cross a stage border have exactly the columns of the contract, and no hole where none belongs."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from schemas.errors import IntegrityError
from schemas.tables import check, feature_columns, partial_schema, schema_fingerprint, shard_schema


@pytest.mark.parametrize("make", [shard_schema, partial_schema])
def test_features_are_columns_and_come_back(make: Callable[[list[str]], pa.Schema]) -> None:
    """The case features of a table are read off its column names, in their order."""
    assert feature_columns(make(["sex", "age_band"])) == ["sex", "age_band"]
    assert feature_columns(make([])) == []


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (shard_schema, "178e3dd7ff337d2dd731b2093e01571d5b1a6fb97037ec2c7e3dd58737326b26"),
        (partial_schema, "6d3e80408ab7306024df68ef65736f8a690d460d28ef7a01183aafecaf137941"),
    ],
)
def test_a_schema_fingerprint_is_frozen(make: Callable[[list[str]], pa.Schema], expected: str) -> None:
    """A column added, renamed, retyped or made nullable needs a new schema version, and this test to say so."""
    assert schema_fingerprint(make(["sex"])) == expected


def test_a_fingerprint_sees_names_types_and_nullability() -> None:
    """Each of the three changes it; the columns' descriptions do not."""
    field = pa.field("x", pa.int64(), nullable=False)
    variants = (field, field.with_name("y"), field.with_type(pa.int32()), field.with_nullable(True))

    fingerprints = [schema_fingerprint(pa.schema([variant])) for variant in variants]

    assert len(set(fingerprints)) == 4
    assert schema_fingerprint(pa.schema([field.with_metadata({"meaning": "other"})])) == fingerprints[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["text"]), "text"),
        (lambda table: table.append_column("more", pa.array(["x"])), "more"),
        (lambda table: table.select([*table.schema.names[1:], table.schema.names[0]]), "order"),
        (lambda table: table.set_column(6, "num_bytes", pa.array([1], pa.int32())), "num_bytes"),
        (lambda table: table.cast(_nullable(table.schema)), "order"),
    ],
)
def test_another_schema_is_refused(change: Callable[[pa.Table], pa.Table], message: str) -> None:
    """A missing, added, moved, retyped or loosened column is an error that names it."""
    table = shard_table("synthetic note: chest pain")

    with pytest.raises(IntegrityError, match=rf"^x: columns differ from schema 1: .*{message}") as caught:
        check(change(table), shard_schema([]), "x")

    assert "chest" not in str(caught.value)


def test_a_null_where_none_belongs_is_refused() -> None:
    """A null text is named by its column; nullable columns may hold nulls."""
    schema = shard_schema([])

    check(shard_table("note"), schema, "x")
    with pytest.raises(IntegrityError, match=r"^x: null values in text$"):
        check(shard_table(None), schema, "x")


def shard_table(text: str | None) -> pa.Table:
    """One row of a shard."""
    row = {"record_id": b"0" * 16, "text": text, "num_bytes": 1, "estimated_tokens": 1}
    columns = [pa.array([row.get(item.name)], item.type) for item in shard_schema([])]
    return pa.Table.from_arrays(columns, schema=shard_schema([]))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([item.with_nullable(True) for item in schema])
