"""Dates and times as hospitals write them: ISO 8601 to the letter, and nothing that would have to be guessed.

``03/04/2019`` is April in one country and March in another, so only the order year, month, day is read. A time without
an offset counts as UTC: within one hospital all such times share a clock, and only their order matters.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta

MONTHS = 12

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DATE = re.compile(
    r"(?P<year>[0-9]{4})(-(?P<month>[0-9]{2})(-(?P<day>[0-9]{2})"
    r"(?P<time>[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?)?)?"
)
_FRACTION = re.compile(r"([.][0-9]{6})[0-9]+")


def date_of(text: str) -> date | None:
    """The day as it is written, whatever the offset; a missing month or day counts as the first.

    Args:
        text: ``2019``, ``2019-05``, ``2019-05-17``, or that with ``T`` or a space, a time and perhaps an offset.

    Returns:
        None for anything else, also for a day or a time that the calendar does not have.
    """
    moment = _moment(text)
    return None if moment is None else moment.date()


def days_of(text: str) -> tuple[date, date] | None:
    """The first and the last day that a date may mean, of those that ``date_of`` reads: ``2019`` is any day of 2019."""
    first = date_of(text)
    if first is None:
        return None
    length = len(text.strip())
    month = first.month if length > len("2019") else MONTHS
    day = first.day if length > len("2019-05") else monthrange(first.year, month)[1]
    return first, date(first.year, month, day)


def utc_microseconds(text: str) -> int | None:
    """Microseconds since 1970-01-01 UTC, int64; None for what ``date_of`` does not read. Finer digits are cut off."""
    moment = _moment(text)
    if moment is None:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def years_between(birth: str | None, at: str | None) -> range | None:
    """Every number of whole years that may lie between a birth and a later day, both read by ``date_of``.

    Nobody is written about before birth: of the days that two short dates may be, those in which the second is the
    earlier one are not meant, as long as there are others.

    Returns:
        One number, or several if a date has no day or no month; negative if the second date is the earlier one in any
        case. None if one of them is no date.
    """
    born, then = (None if text is None else days_of(text) for text in (birth, at))
    if born is None or then is None:
        return None
    fewest, most = _whole_years(born[1], then[0]), _whole_years(born[0], then[1])
    return range(fewest if most < 0 else max(0, fewest), most + 1)


def _whole_years(birth: date, at: date) -> int:
    return at.year - birth.year - ((at.month, at.day) < (birth.month, birth.day))


def _moment(text: str) -> datetime | None:
    found = _DATE.fullmatch(text.strip())
    if not found:
        return None
    day = f"{found['year']}-{found['month'] or '01'}-{found['day'] or '01'}"
    try:
        return datetime.fromisoformat(day + _FRACTION.sub(r"\1", found["time"] or ""))
    except ValueError:
        return None
