"""Settings that would leak a record or break a library are refused before anything is read."""

from __future__ import annotations

import codecs
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sharding.config import CONFIDENTIAL_ROLES, COUNTED_NAMES, ShardingSettings
from sharding.sources.encodings import NO_CHARSETS

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


@pytest.mark.parametrize("name", [*sorted(COUNTED_NAMES), "conflicting_patient", "conflicting_x"])
def test_a_feature_is_not_named_as_what_is_counted_beside_features(name: str) -> None:
    """Its count of lost values would stand for another, on which a limit may rest; the message names it."""
    with pytest.raises(ValidationError, match=f"{name} cannot name a feature; take another name"):
        _settings(columns={"text": "t", "features": {name: "year(x)"}})


@pytest.mark.parametrize(
    "name", [*sorted(NO_CHARSETS), "unicode_escape", "U8_escape", "rot13", "base64", "no-such", "a\0"]
)
def test_what_is_no_encoding_of_text_files_is_refused(name: str) -> None:
    """Codecs that Python knows, but that cannot read a file piece by piece as it was written."""
    with pytest.raises(ValidationError, match="unknown text encoding"):
        _settings(encoding=name)


@pytest.mark.parametrize("name", ["utf-8", "ascii", "latin-1", "utf-16", "utf-32-be", "gb18030", "shift_jis", "cp037"])
def test_encodings_of_text_files_are_taken(name: str) -> None:
    """Among them wide ones, those with states, and one in which no letter has its ASCII code."""
    assert _settings(encoding=name).encoding == codecs.lookup(name).name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes_per_token", "1e-300"),
        ("bytes_per_token", "1e300"),
        ("target_tokens", str(10**23)),
        ("block_tokens", str(10**23)),
        ("max_record_bytes", str(10**23)),
        ("limit", str(10**23)),
        ("seed", str(2**64)),
        ("max_rejects", "101%"),
        ("max_rejects", "100.1%"),
        ("max_rejects", "9" * 5_000),
    ],
)
def test_extremes_are_refused(name: str, value: str) -> None:
    """A number that no corpus needs and no library bears is a wrong setting, not a crash later on."""
    with pytest.raises(ValidationError, match=name):
        _settings(**{name: value})


@pytest.mark.parametrize(("limit", "allowed"), [("0%", 0), ("0.5%", 1), ("100%", 200), ("100.0%", 200), ("7", 7)])
def test_limits_of_rejects_are_taken_to_their_ends(limit: str, allowed: int) -> None:
    """Counts, and shares from none to all."""
    assert _settings(max_rejects=limit).allowed_rejects(200) == allowed


def test_a_share_of_rejects_is_exact() -> None:
    """A per cent of two decimals of 10,000 records is that many, to the last one."""
    limits = [f"{hundredths // 100}.{hundredths % 100:02d}%" for hundredths in range(10_001)]

    assert [_settings(max_rejects=limit).allowed_rejects(10_000) for limit in limits] == list(range(10_001))


def test_departments_do_not_show_in_a_repr() -> None:
    """Dask logs the arguments of tasks that fail, and settings are among them."""
    made = _settings(departments={"Cardiology": "CARD"}, on_unknown="unknown")

    assert "Cardiology" not in repr(made)
    assert "CARD" not in repr(made)
    assert made.departments == {"Cardiology": "CARD"}


def test_functions_and_tables_say_the_same() -> None:
    """A feature as text and as a table make one build."""
    texts = _settings(columns={"text": "t", "features": {"a": "year(x)", "b": "y"}})
    tables = _settings(columns={"text": "t", "features": {"a": {"column": "x", "as": "year"}, "b": {"column": "y"}}})

    assert texts.model_dump(mode="json") == tables.model_dump(mode="json")
    assert texts.columns.by_role == {"text": "t", "feature.a": "x", "feature.b": "y"}
