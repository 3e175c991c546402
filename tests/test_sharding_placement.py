"""Placing is a pure function of the set of records: stratified, complete, and blind to order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.multiset import digest_sum
from sharding.placement import (
    IDENTICAL,
    KEPT,
    NO_TIME,
    OTHER_COLUMNS,
    OTHER_TEXT,
    Keys,
    cut_blocks,
    deal,
    judge_duplicates,
    placement_hashes,
    placement_order,
    shard_sums,
)


def _make_keys(num_records: int, *, num_strata: int = 3, num_departments: int = 2, seed: int = 0) -> Keys:
    random = np.random.default_rng(seed)
    strata = random.integers(0, num_strata, num_records).astype(np.uint64)
    departments = strata % num_departments
    return Keys(
        record_ids=random.integers(0, 256, (num_records, 16)).astype(np.uint8),
        row_digests=random.integers(0, 256, (num_records, 16)).astype(np.uint8),
        text_hashes=random.integers(0, 2**60, num_records).astype(np.uint64),
        strata=strata,
        departments=departments.astype(np.uint64),
        tokens=random.integers(1, 1_000, num_records),
    )


SIZES = st.tuples(st.integers(1, 400), st.integers(1, 8), st.integers(1, 20_000), st.integers(0, 5))


@given(SIZES)
def test_order_does_not_change_where_a_record_goes(sizes: tuple[int, int, int, int]) -> None:
    """Any permutation of the records gives each record the same shard."""
    num_records, num_strata, target, seed = sizes
    keys = _make_keys(num_records, num_strata=num_strata, seed=seed)
    order = np.random.default_rng(seed + 1).permutation(num_records)

    one = deal(keys, placement_hashes(keys.record_ids, seed), seed=seed, target_tokens=target)
    moved = keys.take(order)
    two = deal(moved, placement_hashes(moved.record_ids, seed), seed=seed, target_tokens=target)

    assert (one.shards[order] == two.shards).all()
    assert (one.numbers == two.numbers).all()


@given(SIZES)
def test_every_stratum_is_spread_evenly(sizes: tuple[int, int, int, int]) -> None:
    """Within a stratum no shard of the department has more than one record more than another."""
    num_records, num_strata, target, seed = sizes
    keys = _make_keys(num_records, num_strata=num_strata, seed=seed)

    placed = deal(keys, placement_hashes(keys.record_ids, seed), seed=seed, target_tokens=target)

    for stratum in np.unique(keys.strata):
        own = placed.shards[keys.strata == stratum]
        counts = np.bincount(own, minlength=len(placed.numbers))
        department = keys.departments[keys.strata == stratum][0]
        of_department = counts[placed.departments == department]
        assert of_department.max() - of_department.min() <= 1
        assert of_department.sum() == len(own)


@given(SIZES)
def test_no_shard_is_empty_or_shared(sizes: tuple[int, int, int, int]) -> None:
    """Shards are numbered without gaps, hold at least one record, and those of one department only."""
    num_records, num_strata, target, seed = sizes
    keys = _make_keys(num_records, num_strata=num_strata, seed=seed)

    placed = deal(keys, placement_hashes(keys.record_ids, seed), seed=seed, target_tokens=target)

    assert set(placed.shards) == set(range(len(placed.numbers)))
    assert (placed.departments[placed.shards] == keys.departments).all()
    for department in np.unique(keys.departments):
        own = placed.numbers[placed.departments == department]
        assert own.tolist() == list(range(len(own)))


def test_remainders_do_not_pile_up_on_the_first_shard() -> None:
    """Many strata of one record each begin at shards of their own, so that no shard gets all of them."""
    keys = _make_keys(64_000, num_strata=8_000, num_departments=1)

    placed = deal(keys, placement_hashes(keys.record_ids, 0), seed=0, target_tokens=2_000_000)

    counts = np.bincount(placed.shards)
    assert len(counts) > 10
    assert counts.max() / counts.mean() < 1.05


@pytest.mark.parametrize("num_shards", [127, 128, 129, 255, 256, 257, 32_768])
def test_no_record_is_lost_for_any_number_of_shards(num_shards: int) -> None:
    """The shards' sums of row digests add up to that of all records."""
    keys = _make_keys(2 * num_shards, num_strata=1, num_departments=1)
    equal = np.ones(2 * num_shards, dtype=np.int64)
    keys = Keys(keys.record_ids, keys.row_digests, keys.text_hashes, keys.strata, keys.departments, equal)

    placed = deal(keys, placement_hashes(keys.record_ids, 0), seed=0, target_tokens=2)

    sums = shard_sums(placed.shards, keys.row_digests, len(placed.numbers))
    assert len(placed.numbers) == num_shards
    assert (np.bincount(placed.shards) == 2).all()
    assert sum(sums) % 2**128 == digest_sum(keys.row_digests)


def test_two_copies_do_not_cancel() -> None:
    """A row twice, or another row twice, give other sums, which an exclusive or would not tell apart."""
    rows = np.arange(64, dtype=np.uint8).reshape(4, 16)

    sums = {digest_sum(rows[[0, 1, 1]]), digest_sum(rows[[0, 2, 2]]), digest_sum(rows[[0]])}

    assert len(sums) == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=30), st.integers(0, 9))
def test_duplicates_are_judged_the_same_in_any_order(rows: list[tuple[int, int, int]], seed: int) -> None:
    """Of each id the smallest row digest is kept, and the others are told by how they differ from it."""
    keys = _keys_of(rows)
    order = np.random.default_rng(seed).permutation(len(rows))

    verdicts = judge_duplicates(keys)
    moved = judge_duplicates(keys.take(order))

    def outcome(kept: Keys, found: np.ndarray) -> list[tuple[bytes, bytes, int]]:
        return sorted(
            (one.tobytes(), row.tobytes(), int(verdict))
            for one, row, verdict in zip(kept.record_ids, kept.row_digests, found, strict=True)
        )

    assert outcome(keys, verdicts) == outcome(keys.take(order), moved)
    assert (verdicts == KEPT).sum() == len({row[0] for row in rows})
    for record in {row[0] for row in rows}:
        own = sorted((row, verdict) for row, verdict in zip(rows, verdicts.tolist(), strict=True) if row[0] == record)
        winner = min((row for row, _ in own), key=lambda row: (row[1], row[2]))
        for row, verdict in own:
            expected = {KEPT, IDENTICAL} if row == winner else {OTHER_COLUMNS if row[1] == winner[1] else OTHER_TEXT}
            assert verdict in expected


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-5, 0, 3, 7, int(NO_TIME)])), max_size=20), st.integers(0, 9)
)
def test_of_equal_rows_the_first_in_time_is_kept_in_any_order(rows: list[tuple[int, int]], seed: int) -> None:
    """Rows that differ in their time only are judged by it, not by their order; no time comes last."""
    keys = replace(
        _keys_of([(record, 0, 0) for record, _ in rows]),
        groups=np.zeros((len(rows), 16), dtype=np.uint8),
        times=np.array([time for _, time in rows], dtype=np.int64),
    )
    moved = keys.take(np.random.default_rng(seed).permutation(len(rows)))

    verdicts = judge_duplicates(moved)

    kept = moved.take(np.flatnonzero(verdicts == KEPT))
    found = dict(zip(kept.record_ids[:, 15].tolist(), kept.times.tolist(), strict=True))
    records = {record for record, _ in rows}
    assert found == {record: min(time for own, time in rows if own == record) for record in records}


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=200), st.integers(1, 20_000))
def test_blocks_are_nearly_equal_and_split_no_record(tokens: list[int], block_tokens: int) -> None:
    """Blocks cover the shard in order; none is more than a record larger than asked for."""
    counts = cut_blocks(np.array(tokens, dtype=np.int64), block_tokens)

    starts = np.cumsum(counts) - counts
    sums = [sum(tokens[start : start + count]) for start, count in zip(starts, counts, strict=True)]
    assert counts.sum() == len(tokens)
    assert counts.min() > 0
    assert max(sums) <= block_tokens + 1 + max(tokens)


def test_the_order_of_a_shard_is_that_of_the_hash() -> None:
    """Rows are ordered by seeded hash, and another seed gives another order."""
    keys = _make_keys(100)

    orders = [placement_order(keys.record_ids, placement_hashes(keys.record_ids, seed)).tolist() for seed in (0, 1)]

    hashes = placement_hashes(keys.record_ids, 0)
    assert (np.diff(hashes[orders[0]].astype(object)) >= 0).all()
    assert orders[0] != orders[1]


def _keys_of(rows: list[tuple[int, int, int]]) -> Keys:
    """Keys of (record, text, other columns); the row digest orders by (text, other columns)."""
    size = len(rows)
    ids, digests = np.zeros((size, 16), dtype=np.uint8), np.zeros((size, 16), dtype=np.uint8)
    for index, (record, text, other) in enumerate(rows):
        ids[index, 15] = record
        digests[index, 0], digests[index, 15] = text, other
    texts = np.array([row[1] for row in rows], dtype=np.uint64)
    same = np.zeros(size, dtype=np.uint64)
    return Keys(ids, digests, texts, same, same, np.ones(size, dtype=np.int64))


def test_equal_hashes_are_told_apart_by_id() -> None:
    """Even if all placement hashes met, the order of the input would not matter."""
    keys = _make_keys(200)
    order = np.random.default_rng(3).permutation(200)
    moved = keys.take(order)
    equal = np.zeros(200, dtype=np.uint64)

    one, two = (deal(part, equal, seed=0, target_tokens=5_000) for part in (keys, moved))

    assert (one.shards[order] == two.shards).all()
    assert len(one.numbers) > 2
