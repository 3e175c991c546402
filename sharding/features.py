"""Case features from what hospitals write: bands and codes of few values, pooled where a value could point to a person.

Each function is pure and takes one value; ``map_distinct`` applies it to a column once per distinct value. What cannot
be read is None, and whoever calls counts it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from sharding.dates import date_of

# HIPAA Safe Harbor, 45 CFR 164.514(b)(2)(i)(C): all ages over 89 are one category.
POOLED_AGE = 90
BAND_YEARS = 10
# MIMIC-III moves the birth of whoever is over 89 to 300 years before; beyond that a birth date is a slip.
MAX_SHIFTED_AGE = 400

_SEXES = {
    **dict.fromkeys(("m", "male", "man", "男", "男性"), "male"),
    **dict.fromkeys(("f", "female", "woman", "女", "女性"), "female"),
    **dict.fromkeys(("o", "other", "x", "nonbinary", "non-binary", "diverse"), "other"),
}


def age_band(years: int | range | None) -> str | None:
    """Ten-year band: ``00-09`` to ``80-89``, then ``90+``, also for ages shifted to hide them; None if negative.

    Of several years that are possible, the band in which all of them lie; None if they lie in more than one.
    """
    if isinstance(years, range):
        bands = {age_band(number) for number in years}
        return bands.pop() if len(bands) == 1 else None
    if years is None or not 0 <= years <= MAX_SHIFTED_AGE:
        return None
    if years >= POOLED_AGE:
        return f"{POOLED_AGE}+"
    start = years - years % BAND_YEARS
    return f"{start:02d}-{start + BAND_YEARS - 1:02d}"


def age_band_of(text: str | None) -> str | None:
    """Band of an age that is written as a whole number of years."""
    plain = "" if text is None else text.strip()
    return age_band(int(plain)) if plain.isascii() and plain.isdecimal() and len(plain) <= len("400") else None


def year_of(text: str | None) -> str | None:
    """The year of an ISO 8601 date or timestamp as four digits; the year as it is written, whatever the offset."""
    day = None if text is None else date_of(text)
    return None if day is None else f"{day.year:04d}"


def sex_of(text: str | None) -> str | None:
    """``male``, ``female`` or ``other``; None for unknown and for any word that is not one of the usual ones."""
    return None if text is None else _SEXES.get(text.strip().casefold())


def map_distinct(column: pa.Array | pa.ChunkedArray, function: Callable[[str], str | None]) -> pa.Array:
    """A function of strings over a column, called once per distinct value; null stays null.

    Args:
        column: Of any string type.
        function: Pure; None becomes null.

    Returns:
        ``large_string``, as long as the column.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = whole.dictionary_encode()
    values = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, pa.large_string()).take(encoded.indices)
