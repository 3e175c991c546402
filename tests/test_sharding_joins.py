"""Lookups answer as a plain walk over all rows would, in any order of the rows."""

from __future__ import annotations

import random

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sharding.sources.joins import CONFLICT, TIME, answers, any_set, completed_lookup, first_told, latest, lookup
from sharding.sources.keyed import KEY

KEYS = st.one_of(st.none(), st.sampled_from(["7", "07", "7.0", "", "é", "longer key"]))
VALUES = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
TIMES = st.one_of(st.none(), st.integers(-3, 5))
HISTORY = st.lists(st.tuples(KEYS, TIMES, VALUES), max_size=20)
ASKED = st.lists(st.tuples(KEYS, TIMES), max_size=20)
HISTORY_SCHEMA = {KEY: pl.String, TIME: pl.Int64, "value": pl.String}


def history_of(rows: list[tuple[str | None, int | None, str | None]]) -> pa.Table:
    """A lookup with one row per key and time."""
    return lookup(pl.DataFrame(rows, schema=HISTORY_SCHEMA, orient="row"), (KEY, TIME))


def ask(table: pa.Table, asked: list[tuple[str | None, int | None]]) -> list[str | None]:
    """The latest values."""
    frame = pl.DataFrame(asked, schema={KEY: pl.String, TIME: pl.Int64}, orient="row")
    return latest(frame[KEY], frame[TIME], table)["value"].to_list()


def walked(rows: list[tuple[str | None, int | None, str | None]], key: str | None, time: int | None) -> str | None:
    """The value at the latest time not after ``time``; of several the first one, null last."""
    past = [
        (start, value)
        for other, start, value in rows
        if other is not None and start is not None and time is not None and other == key and start <= time
    ]
    last = max((start for start, _ in past), default=None)
    return min(
        (value for start, value in past if start == last), key=lambda value: (value is None, value or ""), default=None
    )


@given(HISTORY, ASKED)
def test_the_latest_row_not_after_a_time_is_found(
    rows: list[tuple[str | None, int | None, str | None]], asked: list[tuple[str | None, int | None]]
) -> None:
    """For any history with gaps, repeats and nulls, and any questions in any order."""
    found = ask(history_of(rows), asked)

    assert found == [walked(rows, key, time) for key, time in asked]


@given(HISTORY, st.randoms())
def test_a_lookup_does_not_depend_on_the_order_of_rows(
    rows: list[tuple[str | None, int | None, str | None]], chance: random.Random
) -> None:
    """Shuffled rows give an equal table."""
    shuffled = chance.sample(rows, len(rows))

    assert history_of(shuffled).equals(history_of(rows))


@given(st.lists(st.tuples(KEYS, VALUES), max_size=20), st.lists(KEYS, max_size=20))
def test_each_key_is_answered_by_its_first_row(
    rows: list[tuple[str | None, str | None]], asked: list[str | None]
) -> None:
    """Of several rows with one key the one that sorts first counts, null last; an unknown key has no answer."""
    table = lookup(pl.DataFrame(rows, schema={KEY: pl.String, "value": pl.String}, orient="row"))

    found = answers(pl.Series(asked, dtype=pl.String), table)["value"].to_list()

    values = {key: [value for other, value in rows if other == key and other is not None] for key in asked}
    assert found == [min(values[key], key=lambda value: (value is None, value), default=None) for key in asked]


@given(st.lists(st.tuples(KEYS, VALUES), max_size=20), st.lists(KEYS, max_size=20))
def test_a_row_that_was_picked_from_several_that_differ_is_marked(
    rows: list[tuple[str | None, str | None]], asked: list[str | None]
) -> None:
    """Repeats of a row are no difference; where there is no row, nothing is known."""
    table = lookup(pl.DataFrame(rows, schema={KEY: pl.String, "value": pl.String}, orient="row"))

    found = answers(pl.Series(asked, dtype=pl.String), table)[CONFLICT].to_list()

    values = {key: {value for other, value in rows if other == key and other is not None} for key in asked}
    assert found == [len(values[key]) > 1 if values[key] else None for key in asked]


@example([("07", None, "a"), ("07", None, "b"), ("07", "a", None), ("07", "b", None)], ["07"], random.Random(0))
@given(st.lists(st.tuples(KEYS, VALUES, VALUES), max_size=20), st.lists(KEYS, max_size=20), st.randoms())
def test_rows_of_a_key_complete_each_other(
    rows: list[tuple[str | None, str | None, str | None]], asked: list[str | None], chance: random.Random
) -> None:
    """What some rows tell and none denies is known; only where two values differ one is picked, and that is marked."""
    schema = {KEY: pl.String, "one": pl.String, "other": pl.String}
    frames = [pl.DataFrame(order, schema=schema, orient="row") for order in (rows, chance.sample(rows, len(rows)))]

    found, moved = (answers(pl.Series(asked, dtype=pl.String), completed_lookup(frame)) for frame in frames)

    assert moved.equals(found)
    for key, (*values, is_conflicting) in zip(asked, found.select("one", "other", CONFLICT).iter_rows(), strict=True):
        told = [{row[at] for row in rows if row[0] == key and key is not None} - {None} for at in (1, 2)]
        is_there = key is not None and any(row[0] == key for row in rows)
        assert all(value in words if words else value is None for value, words in zip(values, told, strict=True))
        assert is_conflicting == (any(len(words) > 1 for words in told) if is_there else None)


@given(st.lists(st.lists(st.tuples(VALUES, st.booleans()), min_size=5, max_size=5), min_size=1, max_size=4))
def test_an_answer_is_needed_until_one_tells_a_value(answered: list[list[tuple[str | None, bool]]]) -> None:
    """Row by row; what comes after the first value is not asked, so that its flags do not count."""
    frames = [pl.DataFrame(rows, schema={"value": pl.String, CONFLICT: pl.Boolean}, orient="row") for rows in answered]

    values, needed = first_told(frames, "value")

    rows = list(zip(*answered, strict=True))
    stops = [next((at for at, (value, _) in enumerate(row) if value is not None), len(row) - 1) for row in rows]
    assert values.to_list() == [row[stop][0] for row, stop in zip(rows, stops, strict=True)]
    assert any_set(needed, CONFLICT).to_list() == [
        any(flag for _, flag in row[: stop + 1]) for row, stop in zip(rows, stops, strict=True)
    ]


@given(HISTORY, ASKED, st.integers(0, 20))
def test_chunks_of_a_lookup_do_not_matter(
    rows: list[tuple[str | None, int | None, str | None]], asked: list[tuple[str | None, int | None]], cut: int
) -> None:
    """A table that came back from a file in parts answers alike."""
    whole = history_of(rows)
    parts = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])

    assert ask(parts, asked) == ask(whole, asked)


def test_keys_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys that collide find their own rows only."""
    monkeypatch.setattr("xxhash.xxh3_64_intdigest", lambda key: len(key))
    table = history_of([("ab", 1, "a"), ("cd", 2, "b")])

    found = ask(table, [("cd", 9), ("ab", 9), ("ef", 9), ("cd", 1)])

    assert found == ["b", "a", None, None]
