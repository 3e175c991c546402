"""Case features are pooled where they could point to a person, and what cannot be read is none, never a guess."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.diagnoses import icd_chapter
from sharding.features import age_band, age_band_of, map_distinct, sex_of, year_of

VALUES = st.lists(st.one_of(st.none(), st.sampled_from(["M", "F", "?", "2019-05-17", "I10", "428.0", "", "38.9"])))


@given(VALUES)
def test_a_column_is_mapped_value_by_value(values: list[str | None]) -> None:
    """Each cell of the result is the function of its own cell, whatever stands beside it; null stays null."""
    for function in (sex_of, year_of, icd_chapter, age_band_of):
        found = map_distinct(pa.array(values, pa.large_string()), function)

        assert found.type == pa.large_string()
        assert found.to_pylist() == [function(value) for value in values]


@given(VALUES, st.integers(0, 9))
def test_chunks_do_not_matter(values: list[str | None], cut: int) -> None:
    """A column in parts gives what the whole gives."""
    parts = [pa.array(values[:cut], pa.large_string()), pa.array(values[cut:], pa.large_string())]

    found = map_distinct(pa.chunked_array(parts), sex_of)

    assert found.to_pylist() == [sex_of(value) for value in values]


def test_a_function_is_asked_once_per_distinct_value() -> None:
    """A million rows of two values take two calls."""
    asked: list[str] = []

    def noted(value: str) -> str:
        asked.append(value)
        return value

    map_distinct(pa.array(["a", "b", None, "a", "b", "a"]), noted)

    assert sorted(asked) == ["a", "b"]


@given(st.integers(0, 89))
def test_an_age_lies_in_its_band(years: int) -> None:
    """Bands below 90 are ten years wide, and sort as the ages do."""
    band = age_band(years)

    first, last = map(int, (band or "").split("-"))
    assert first <= years <= last
    assert last - first == 9
    assert str(band) <= str(age_band(years + 1))


@pytest.mark.parametrize("years", [90, 91, 110, 300, 311])
def test_very_old_ages_are_pooled(years: int) -> None:
    """Ages over 89 are one category, also those that were shifted by centuries to hide them."""
    assert age_band(years) == "90+"


@pytest.mark.parametrize("years", [None, -1, -300, 401, 10**9])
def test_what_is_no_age_has_no_band(years: int | None) -> None:
    """A birth after the note, or a slip of the pen."""
    assert age_band(years) is None


@given(st.integers(-20, 120), st.integers(1, 20))
def test_several_ages_have_a_band_if_it_is_that_of_each(first: int, num_ages: int) -> None:
    """And none where one of them is in another, or is no age."""
    ages = range(first, first + num_ages)

    band = age_band(ages)

    of_each = {age_band(years) for years in ages}
    assert band == (of_each.pop() if len(of_each) == 1 else None)


@pytest.mark.parametrize("text", ["", "  ", "-1", "4.5", "4 5", "four", "٤٥", "0x10", "1e2", "9999", "45y"])
def test_what_is_no_whole_number_of_years_has_no_band(text: str) -> None:
    """Only decimal digits are read."""
    assert age_band_of(text) is None


@pytest.mark.parametrize(("text", "band"), [("0", "00-09"), (" 47 ", "40-49"), ("007", "00-09"), ("90", "90+")])
def test_ages_are_read(text: str, band: str) -> None:
    """With space around and zeros before."""
    assert age_band_of(text) == band


@pytest.mark.parametrize(
    ("text", "sex"),
    [("M", "male"), ("male ", "male"), ("女", "female"), ("FEMALE", "female"), ("other", "other"), ("X", "other")],
)
def test_sexes_are_read(text: str, sex: str) -> None:
    """In any case, by letter, word or sign."""
    assert sex_of(text) == sex


@pytest.mark.parametrize("text", [None, "", "U", "unknown", "1", "0", "mf"])
def test_an_unknown_sex_is_none(text: str | None) -> None:
    """Numbers mean different sexes in different systems, so they are not read."""
    assert sex_of(text) is None
