"""Settings that would leak a record or break a library are refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sharding.config import CONFIDENTIAL_ROLES, ShardingSettings

ROLES = {"id": "i", "text": "t", "department": "d", "patient": "p", "encounter": "e"}


def _settings(**values: Any) -> ShardingSettings:
    return ShardingSettings.model_validate({"columns": {"text": "t"}, **values})


@given(st.sampled_from(CONFIDENTIAL_ROLES), st.sampled_from([*ROLES, "feature"]))
def test_a_column_of_ids_or_text_has_one_role(role: str, other: str) -> None:
    """Whatever else is asked of its column is refused, and both roles are named."""
    if other == role:
        return
    column = ROLES[role]
    columns = {**ROLES, "features": {"kind": column}} if other == "feature" else {**ROLES, other: column}

    with pytest.raises(ValidationError) as caught:
        _settings(columns=columns)

    assert f"--{role}" in str(caught.value)
    assert f"--{other}" in str(caught.value)


def test_a_column_of_groups_has_many_roles() -> None:
    """Two features may be of one column, and of the department's."""
    columns = {**ROLES, "features": {"one": "x", "two": "x", "unit": "d"}}

    made = _settings(columns=columns)

    assert made.columns.feature_names == ["length_band", "one", "two", "unit"]


@pytest.mark.parametrize("name", ["department", "length_band", "a b", "a/b", "ä", "", "a" * 65, "a\n"])
def test_a_feature_has_a_plain_name_of_its_own(name: str) -> None:
    """Names that are taken, or that no file or column may hold, are refused."""
    with pytest.raises(ValidationError, match="name"):
        _settings(columns={"text": "t", "features": {name: "x"}})
