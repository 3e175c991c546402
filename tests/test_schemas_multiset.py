"""The multiset digest of rows: blind to order and chunks, and to nothing else."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from schemas.multiset import digest_sum, multiset_hex, row_digests

ROWS = st.lists(st.tuples(st.none() | st.text(max_size=4), st.none() | st.text(max_size=4), st.integers(-5, 5)))


def _table(rows: list[tuple[str | None, str | None, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    kinds = (pa.large_string(), pa.string(), pa.int64())
    return pa.table({str(index): pa.array(columns[index], kinds[index]) for index in range(3)})


@given(ROWS)
def test_order_and_chunks_do_not_matter(rows: list) -> None:
    """Any permutation and any split of the rows sum to the same digest."""
    shuffled = sorted(rows, key=lambda row: str(row)[::-1])
    half = len(rows) // 2
    parts = pa.concat_tables([_table(shuffled[:half]), _table(shuffled[half:])])

    one, two = digest_sum(row_digests(_table(rows))), digest_sum(row_digests(parts))

    assert one == two
    assert one == sum(digest_sum(row_digests(_table([row]))) for row in rows) % 2**128


@given(ROWS, st.integers(0, 200))
def test_a_row_has_one_digest_in_any_company(rows: list, length: int) -> None:
    """Whether the other rows are short, long or equal to it."""
    own = row_digests(_table([("a", None, 1)]))[0]

    among = row_digests(_table([*rows, ("a", None, 1), ("b" * length, "c" * length * 2, 2)]))

    assert among[len(rows)].tolist() == own.tolist()


@given(ROWS)
def test_equal_digests_are_equal_rows(rows: list) -> None:
    """Null and the empty string, ("ab", "c") and ("a", "bc"), all differ."""
    table = _table([*rows, ("ab", "c", 0), ("a", "bc", 0), (None, "", 0), ("", None, 0)])

    digests = [digest.tobytes() for digest in row_digests(table)]

    assert len(set(digests)) == len(set(map(tuple, _rows(table))))


def test_a_row_twice_is_not_a_row_less() -> None:
    """Copies add up instead of cancelling out."""
    one, two, three = (digest_sum(row_digests(_table([("a", "b", 1)] * count))) for count in (1, 2, 3))

    assert len({0, one, two, three}) == 4
    assert two == 2 * one % 2**128


def test_a_digest_is_that_of_the_documented_message() -> None:
    """The definition does not move between releases or platforms: a string, a null, an id and a number."""
    named = _table([("a", None, 1)]).append_column("id", pa.array([b"0123456789abcdef"], pa.binary(16)))

    digests = row_digests(named)

    message = b"\1" + xxhash.xxh3_128_digest(b"a") + bytes(17) + struct.pack("<q", 1) + b"\1" + b"0123456789abcdef"
    assert digests.shape == (1, 16)
    assert digests.dtype == np.uint8
    assert digests.tobytes() == xxhash.xxh3_128_digest(message)
    assert multiset_hex(digest_sum(digests)) == "50e3547dc0a2f33091ad15a5720ed47a"


def _rows(table: pa.Table) -> list[list[object]]:
    return [list(row.values()) for row in table.to_pylist()]
