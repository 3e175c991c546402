"""Lookup tables: a key finds its own row and no other, and which of several rows counts does not depend on order."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sharding.sources.keyed import HASH, KEY, find, hash_of, keyed, latest, rows_at, rows_with, values_at
from sharding.sources.ranges import ranges

KEYS = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=4)


@given(rows=st.dictionaries(KEYS, KEYS, max_size=30), wanted=st.lists(st.one_of(st.none(), KEYS), max_size=30))
def test_looking_up_is_what_a_dictionary_does(rows: dict[str, str], wanted: list[str | None]) -> None:
    """Every wanted key gets its value, and null where there is none or it is null itself."""
    table = keyed(_table(list(rows.items())))

    found = values_at(table, "value", find(table, wanted))

    assert found.to_pylist() == [None if key is None else rows.get(key) for key in wanted]


@given(
    hashes=st.lists(st.integers(0, 9), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    wanted=st.lists(st.integers(0, 10), max_size=30),
)
def test_a_search_in_parts_is_a_search_in_the_whole(hashes: list[int], cuts: list[int], wanted: list[int]) -> None:
    """Wherever a table is cut, also within rows of one hash, or nowhere; and the rows found are the same."""
    whole = pa.table({HASH: pa.array(sorted(hashes), pa.uint64()), "row": pa.array(range(len(hashes)), pa.int64())})
    borders = [0, *sorted(min(cut, len(hashes)) for cut in cuts), len(hashes)]
    parts = pa.concat_tables([whole.slice(start, stop - start) for start, stop in pairwise(borders)])
    asked = np.array(wanted, dtype=np.uint64)

    starts, stops = rows_with(parts, asked)

    assert starts.tolist() == [bisect_left(sorted(hashes), one) for one in wanted]
    assert stops.tolist() == [bisect_right(sorted(hashes), one) for one in wanted]
    numbers = np.unique(ranges(starts, stops))
    assert rows_at(parts, numbers).column("row").to_pylist() == numbers.tolist()


@given(pairs=st.lists(st.tuples(KEYS, KEYS), max_size=30), seed=st.integers(0, 1_000))
def test_the_last_row_of_a_key_counts_in_any_order(pairs: list[tuple[str, str]], seed: int) -> None:
    """One row per key, that of the greatest value by its bytes."""
    shuffled = random.Random(seed).sample(pairs, len(pairs))

    found = latest(_table(shuffled), ["value"])

    ascending = sorted(pairs, key=lambda pair: (pair[0].encode(), pair[1].encode()))
    greatest = dict(ascending)
    assert dict(zip(found.column(KEY).to_pylist(), found.column("value").to_pylist(), strict=True)) == greatest
    assert found.num_rows == len(greatest)


def test_null_loses_to_any_value() -> None:
    """What one row does not say, another of the same key may."""
    table = pa.table({KEY: ["a", "a", "b"], "value": pa.array([None, "", None], pa.large_string())})

    assert latest(table, ["value"]).column("value").to_pylist() == ["", None]


def test_keys_of_one_hash_are_told_apart() -> None:
    """Where two keys share a hash, the key itself decides; a third key of that hash is not there."""
    shared = hash_of("wanted")
    table = _table([("other", "1"), ("wanted", "2")]).append_column(HASH, pa.array([shared, shared], pa.uint64()))
    without = table.slice(0, 1)

    assert find(table, ["wanted"]).tolist() == [1]
    assert find(without, ["wanted"]).tolist() == [-1]


def test_nothing_is_found_in_an_empty_table() -> None:
    """A family without side files has empty tables."""
    rows = find(keyed(_table([])), ["a", None])

    assert rows.tolist() == [-1, -1]
    assert rows.dtype == np.int64


def _table(pairs: list[tuple[str, str]]) -> pa.Table:
    kind = pa.large_string()
    return pa.table(
        {KEY: pa.array([pair[0] for pair in pairs], kind), "value": pa.array([pair[1] for pair in pairs], kind)}
    )
