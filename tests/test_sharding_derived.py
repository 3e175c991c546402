"""A feature is a column or a function of one; whatever is written otherwise is refused, all of it at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sharding.config import Columns
from sharding.derived import FUNCTIONS, FeatureColumn

FEATURES = st.sampled_from([*FUNCTIONS])
COLUMNS = st.text(min_size=1, max_size=20).filter(lambda name: "(" not in name)


@given(FEATURES, COLUMNS)
def test_a_function_of_a_column_is_read(function: str, column: str) -> None:
    """Whatever the column's name is, and the table form says the same."""
    found = FeatureColumn.model_validate(f"{function}({column})")

    assert (found.function, found.column) == (function, column)
    assert found == FeatureColumn.model_validate({"column": column, "as": function})


@given(COLUMNS)
def test_a_plain_name_is_a_column_as_it_is(column: str) -> None:
    """No function is applied."""
    assert FeatureColumn.model_validate(column) == FeatureColumn(column=column)


@pytest.mark.parametrize("text", ["Date (UTC)", "weight [kg]", "Year(x)", "a(b", "x)", "(x)"])
def test_what_does_not_look_like_a_function_is_a_column(text: str) -> None:
    """Functions are lower-case words with a bracket after them, and end with it."""
    assert FeatureColumn.model_validate(text) == FeatureColumn(column=text)


@pytest.mark.parametrize("text", ["yeer(x)", "year()", "year(sex(x))", "year(x", "weight(kg)", ""])
def test_what_looks_like_a_function_and_is_none_is_refused(text: str) -> None:
    """A slip is said, not taken for the name of a column."""
    with pytest.raises(ValidationError):
        FeatureColumn.model_validate(text)


@pytest.mark.parametrize("value", [3, {"column": "x", "as": "no"}, {"as": "year"}, {"column": "x", "by": "y"}, []])
def test_other_tables_are_refused(value: object) -> None:
    """A column is needed, and a function only one that is known."""
    with pytest.raises(ValidationError):
        FeatureColumn.model_validate(value)


def test_a_column_that_looks_like_a_function_is_given_as_a_table() -> None:
    """Its name is taken as it is."""
    found = FeatureColumn.model_validate({"column": "year(x)"})

    assert (found.column, found.function) == ("year(x)", "text")


def test_all_wrong_features_are_said_at_once() -> None:
    """One error each, by the feature's name."""
    with pytest.raises(ValidationError) as caught:
        Columns.model_validate({"text": "t", "features": {"a": "yeer(x)", "b": "year()", "c": "fine", "d": "sex(y"}})

    assert [error["loc"][:2] for error in caught.value.errors()] == [("features", name) for name in "abd"]
