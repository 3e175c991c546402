"""Which strata can be asked for, and what is said when they cannot."""

from __future__ import annotations

import pytest

from aggregate.crossings import available_columns, parse_crossings
from schemas.errors import UsageError

FEATURES = ["age_band", "length_band", "sex"]


def test_default_is_department_and_length_band_where_there_is_one() -> None:
    """Without --by the department is reported, and the length band if the build has it."""
    assert parse_crossings([], FEATURES) == [("department",), ("length_band",)]
    assert parse_crossings([], ["sex"]) == [("department",)]


def test_crossings_keep_the_order_of_the_request() -> None:
    """Tables and their columns come as they were asked for; blanks around names do not matter."""
    found = parse_crossings(["sex, age_band", "department"], FEATURES)

    assert found == [("sex", "age_band"), ("department",)]


def test_every_fault_is_reported_at_once_with_the_columns_that_exist() -> None:
    """One error lists all unknown, repeated and doubly requested columns, and all that may be asked for."""
    with pytest.raises(UsageError) as caught:
        parse_crossings(["agebnd", "sex,sex", "sex,age_band", "age_band,sex", ""], FEATURES)

    message = str(caught.value)
    for part in ("'agebnd'", "''", "sex,sex names a column twice", "sex,age_band is asked for twice"):
        assert part in message
    assert message.endswith("this build has department, age_band, length_band, sex")


def test_a_feature_called_department_stays_reachable() -> None:
    """The access boundary owns the plain name; the case feature of that name is asked for with its prefix."""
    assert available_columns(["department"]) == {
        "department": "department",
        "feature.department": "feature.department",
    }
