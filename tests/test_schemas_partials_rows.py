"""Rows that break the rules of a partial are neither written nor read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.errors import IntegrityError
from schemas.partials import (
    write_partial,
)
from tests.made_partials import (
    FEATURES,
    KEY,
    RUN_ID,
    SMALL,
    read,
    row,
    table_of,
    unchecked,
    written,
)


@pytest.mark.parametrize(
    "change",
    [
        {"loss_nats": math.nan},
        {"loss_nats": math.inf},
        {"loss_nats": None},
        {"num_tokens": 0},
        {"num_tokens": -3},
        {"num_words": -1},
        {"check_loss_nats": math.nan},
        {
            "check_loss_nats": 1.0,
            "status": "no_tokens",
            "loss_nats": None,
            "num_tokens": 0,
            "num_words": 0,
            "num_bytes": 0,
        },
        {"num_bytes": -1},
        {"status": "no_tokens"},
        {"status": "no_tokens", "loss_nats": None},
        {"status": "no_tokens", "loss_nats": None, "num_tokens": 0},
        {"status": "unheard_of"},
        {"status": "", "loss_nats": None, "num_tokens": 0, "num_words": 0, "num_bytes": 0},
        {"status": "scored "},
    ],
)
def test_rows_that_break_the_rules_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """Rows that contradict themselves are neither written nor, however well they are sealed, read."""
    rows = [row(0), row(1) | change]

    with pytest.raises(IntegrityError, match="rows break the rules of a partial"):
        written(tmp_path, rows)
    with pytest.raises(IntegrityError, match="rows break the rules of a partial"):
        read(unchecked(tmp_path, table_of(rows)))


@pytest.mark.parametrize("name", ["record_id", "status", "num_tokens", "precision"])
def test_a_null_where_none_belongs_is_refused(name: str, tmp_path: Path) -> None:
    """Null where a value belongs is neither written nor read, and never taken for 0."""
    table = table_of([row(0) | {name: None}])

    with pytest.raises(IntegrityError, match=f"null values in {name}"):
        write_partial(tmp_path, table, run_id=RUN_ID, key=KEY)
    with pytest.raises(IntegrityError):
        read(unchecked(tmp_path, table.cast(pa.schema([item.with_nullable(True) for item in table.schema]))))


def test_another_schema_is_not_written(tmp_path: Path) -> None:
    """A table that lacks a column of the contract never becomes a partial."""
    with pytest.raises(IntegrityError, match=rf"^{KEY}: columns differ from schema 1: num_words$"):
        write_partial(tmp_path, table_of(SMALL).drop_columns(["num_words"]), run_id=RUN_ID, key=KEY)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("features", [[], ["sex"], ["diagnosis", "sex"], [*FEATURES, "year"]])
def test_other_features_are_refused(features: list[str], tmp_path: Path) -> None:
    """A partial has the build's case features, all of them, in the manifest's order."""
    partial = written(tmp_path)

    with pytest.raises(IntegrityError, match="columns differ from schema"):
        read(partial, features=features)
