"""Dates are read to the letter of ISO 8601: order, ages and years follow, and nothing is guessed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.dates import date_of, days_of, utc_microseconds, years_between
from sharding.features import age_band, year_of

MOMENTS = st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31))
DAYS = st.dates(date(1850, 1, 1), date(2050, 12, 31))
# How much of ``YYYY-MM-DD`` is written.
LENGTHS = st.sampled_from([len("2019"), len("2019-05"), len("2019-05-17")])
OFFSETS = st.integers(-14 * 60, 14 * 60)


@given(MOMENTS)
def test_a_timestamp_comes_back(moment: datetime) -> None:
    """What the standard library writes is read to the microsecond."""
    found = utc_microseconds(moment.isoformat())

    assert found is not None
    assert datetime(1970, 1, 1) + timedelta(microseconds=found) == moment


@given(MOMENTS, OFFSETS)
def test_an_offset_moves_the_instant_and_not_the_day(moment: datetime, minutes: int) -> None:
    """Equal instants are equal numbers, while year and day are those that were written."""
    sign = "-" if minutes < 0 else "+"
    text = f"{moment.isoformat()}{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"

    instant = utc_microseconds(text)

    assert instant == (
        (moment - timedelta(minutes=minutes)).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ) // (timedelta(microseconds=1))
    assert date_of(text) == moment.date()
    assert year_of(text) == f"{moment.year:04d}"


@given(MOMENTS, MOMENTS)
def test_ages_grow_by_one_on_the_birthday(birth: datetime, at: datetime) -> None:
    """Years between two dates are the birthdays passed."""
    (years,) = years_between(birth.isoformat(), at.isoformat()) or ()

    assert birth.year + years <= at.year
    assert (birth.year + years, birth.month, birth.day) <= (at.year, at.month, at.day)
    assert (birth.year + years + 1, birth.month, birth.day) > (at.year, at.month, at.day)


@pytest.mark.parametrize(
    "text",
    [
        *("", "19", "2019-5-1", "2019-13", "2019-02-30", "0000", "17.05.2019", "05/17/2019", "20190517", "2019-W01-1"),
        *("2019-05-17T24:00", "2019-05-17T10", "2019-05-17T10:11:60", "2019-05-17 10:11 PM", "２０１９", "2019-05-17T"),
        *("2019-05-17T10:11:12.", "2019-05T10:11", "x2019-05-17", "2019-05-17T10:11+25:00"),
    ],
)
def test_what_is_no_iso_date_is_none(text: str) -> None:
    """Other orders and calendars, days that do not exist, and rubbish."""
    assert date_of(text) is None
    assert utc_microseconds(text) is None
    assert year_of(text) is None


@pytest.mark.parametrize(
    ("text", "month"), [("2019", 1), ("2019-05", 5), (" 2019-05-17 ", 5), ("2019-05-17 10:11Z", 5)]
)
def test_short_forms_are_read(text: str, month: int) -> None:
    """FHIR allows a year or a month alone; MIMIC writes a space before the time."""
    found = date_of(text)

    assert found is not None
    assert (found.year, found.month) == (2019, month)
    assert year_of(text) == "2019"


def test_a_leap_day_birthday_is_the_first_of_march() -> None:
    """In a year without the day."""
    ages = [years_between("2000-02-29", f"2021-{day}") for day in ("02-28", "03-01")]

    assert ages == [range(20, 21), range(21, 22)]


@given(DAYS, LENGTHS)
def test_a_short_date_is_any_of_its_days(day: date, length: int) -> None:
    """From the first of the month or year to the last, which the next day is not in."""
    text = day.isoformat()[:length]

    first, last = days_of(text) or (None, None)

    assert first is not None
    assert last is not None
    assert first <= day <= last
    assert first.isoformat()[:length] == last.isoformat()[:length] == text
    assert all(other.isoformat()[:length] != text for other in (first - timedelta(1), last + timedelta(1)))


@given(birth=DAYS, at=DAYS, lengths=st.tuples(LENGTHS, LENGTHS))
def test_ages_of_short_dates_are_those_of_all_their_days(birth: date, at: date, lengths: tuple[int, int]) -> None:
    """Of every pair of days, but for births after the note if there are others; no others at either end."""
    texts = [day.isoformat()[:length] for day, length in zip((birth, at), lengths, strict=True)]

    years = years_between(*texts)

    pairs = [(born, then) for born in _some_days(texts[0]) for then in _some_days(texts[1])]
    single = [years_between(born, then) for born, then in [*pairs, (birth.isoformat(), at.isoformat())]]
    told = {found[0] for found in single if found is not None and len(found) == 1}
    meant = {number for number in told if number >= 0} or told
    assert years is not None
    assert None not in single
    assert all(number in years for number in meant)
    assert {years[0], years[-1]} <= meant


def _some_days(text: str) -> list[str]:
    """The days of a short date with which a month begins or ends, which decide on ages as those between do."""
    first, last = days_of(text) or (date.min, date.min)
    days = [first + timedelta(number) for number in range((last - first).days + 1)]
    return [day.isoformat() for day in days if day in (first, last) or 1 in (day.day, (day + timedelta(1)).day)]


@pytest.mark.parametrize(
    ("birth", "at", "band"),
    [
        ("1950", "2018-05-17", "60-69"),
        ("1950", "2019-12-31", "60-69"),
        ("1950", "2020-12-30", None),
        ("1950", "2020-12-31", "70-79"),
        ("1950", "2020", None),
        ("1950", "2021", "70-79"),
        ("1950-06", "2020-06-29", None),
        ("1950-06", "2020-06-30", "70-79"),
        ("1950-06", "2020-07", "70-79"),
        ("1950-06-17", "2020-06", None),
        ("1950-06-01", "2020-06", "70-79"),
        ("1900", "2019", "90+"),
        ("1929", "2019", None),
        ("2019", "2019-05-17", "00-09"),
        ("2019", "2019", "00-09"),
        ("2019-05", "2019", "00-09"),
        ("2019", "2019-01-01", "00-09"),
        ("2019-06", "2019-05-17", None),
        ("2020", "2019", None),
        ("2019-05-17", "2018", None),
    ],
)
def test_an_age_band_is_given_only_if_every_day_gives_it(birth: str, at: str, band: str | None) -> None:
    """Whoever turns 70 that year may be in either band; whoever is born that year is in the first."""
    assert age_band(years_between(birth, at)) == band


@pytest.mark.parametrize(("birth", "at"), [(None, "2019"), ("2019", None), ("x", "2019"), ("2019", "x")])
def test_an_unknown_date_gives_no_age(birth: str | None, at: str | None) -> None:
    """Neither end is guessed."""
    assert years_between(birth, at) is None
