"""Cells of integer columns are equal text where they are equal numbers; all other cells stay as they are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.sources.cells import cells


def read(*texts: str | None) -> list[str | None]:
    """The cells of a column of integers."""
    table = pa.table({"id": pa.array(texts, pa.large_string())})
    return cells(table, ("id",), integers=("id",))["id"].to_list()


@given(st.integers(), st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", " ", "\t"]))
def test_an_integer_is_the_same_however_it_is_written(number: int, before: int, after: int, space: str) -> None:
    """With zeros before, as a float, or with space around it; of any size, so never through a float."""
    sign, digits = "-" * (number < 0), str(abs(number))
    written = f"{space}{sign}{'0' * before}{digits}{'.' * (after > 0)}{'0' * after}{space}"

    found = read(written, str(number))

    assert found == [str(number), str(number)]


@pytest.mark.parametrize(
    "text", ["1.5", "1e3", "+1", "1 0", "1,000", "--1", ".0", "-", "٣", "1.0.0", "0x1", "1\n2", "K10"]
)
def test_what_is_no_integer_stays_as_it_is(text: str) -> None:
    """A fraction, an exponent, digits of other scripts, any text."""
    assert read(text) == [text]


def test_columns_that_are_no_integers_keep_their_zeros() -> None:
    """A diagnosis of ICD-9, say."""
    table = pa.table({"id": pa.array(["0102"], pa.large_string()), "code": pa.array(["0389"], pa.large_string())})

    found = cells(table, ("code", "id"), integers=("id",))

    assert found.rows() == [("0389", "102")]
