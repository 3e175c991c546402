"""Groups go to one shard whole and in the order of time, and shards stay even however heavy some groups are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sharding.config import ShardingSettings
from sharding.grouping import deal_groups, group_records
from sharding.layout import Layout, lay_out
from sharding.placement import NO_TIME, Keys, cut_grouped_blocks, placement_hashes, turns_of

SIZES = st.tuples(st.integers(1, 300), st.integers(1, 80), st.integers(1, 6), st.integers(1, 20_000), st.integers(0, 5))
Sizes = tuple[int, int, int, int, int]


def made_keys(sizes: Sizes) -> Keys:
    """Records of some groups, whose records are of several strata and departments, some without a time."""
    num_records, num_groups, num_strata, _, seed = sizes
    random = np.random.default_rng(seed)
    strata = random.integers(0, num_strata, num_records).astype(np.uint64)
    group_ids = random.integers(0, 256, (num_groups, 16)).astype(np.uint8)
    times = random.integers(0, 4, num_records)
    return Keys(
        record_ids=random.integers(0, 256, (num_records, 16)).astype(np.uint8),
        row_digests=random.integers(0, 256, (num_records, 16)).astype(np.uint8),
        text_hashes=random.integers(0, 2**60, num_records).astype(np.uint64),
        strata=strata,
        departments=strata % np.uint64(2),
        tokens=random.integers(1, 1_000, num_records),
        groups=group_ids[random.integers(0, num_groups, num_records)],
        times=np.where(times == 3, NO_TIME, times),
    )


def laid(keys: Keys, sizes: Sizes) -> Layout:
    """Their layout."""
    _, _, _, target, seed = sizes
    columns = {"text": "t", "patient": "p"}
    settings = ShardingSettings.model_validate(
        {
            "columns": columns,
            "group": "patient",
            "target_tokens": target,
            "block_tokens": max(1, target // 4),
            "seed": seed,
        }
    )
    return lay_out(keys, placement_hashes(keys.record_ids, seed), settings)


def names_of(keys: Keys) -> list[tuple[int, bytes]]:
    """Department and group of each record."""
    return [(int(one), group.tobytes()) for one, group in zip(keys.departments, keys.groups, strict=True)]


@given(SIZES)
def test_groups_are_whole(sizes: Sizes) -> None:
    """All records that a department has of one group are in one shard, side by side, and it is of the department."""
    keys = made_keys(sizes)

    layout = laid(keys, sizes)

    shards = layout.placement.shards
    names = names_of(keys)
    assert len(set(zip(names, shards.tolist(), strict=True))) == len(set(names))
    assert (layout.placement.departments[shards] == keys.departments).all()
    in_order = [names[row] for row in layout.order]
    assert sum(one != two for one, two in pairwise(in_order)) + 1 == len(set(names))


@given(SIZES)
def test_records_of_a_group_are_in_the_order_of_time(sizes: Sizes) -> None:
    """Those without a time come last; equal times are ordered by (hash, id)."""
    keys = made_keys(sizes)
    hashes = placement_hashes(keys.record_ids, sizes[-1])

    layout = laid(keys, sizes)

    names = names_of(keys)
    for one, two in pairwise(layout.order.tolist()):
        if names[one] == names[two]:
            assert (keys.times[one], hashes[one]) < (keys.times[two], hashes[two])


@given(SIZES)
def test_order_does_not_change_where_a_group_goes(sizes: Sizes) -> None:
    """Any permutation of the records gives each record the same shard and the same place in it."""
    keys = made_keys(sizes)
    order = np.random.default_rng(sizes[-1] + 1).permutation(len(keys.tokens))

    one, two = laid(keys, sizes), laid(keys.take(order), sizes)

    assert (one.placement.shards[order] == two.placement.shards).all()
    assert (one.positions()[order] == two.positions()).all()
    assert (one.block_sizes == two.block_sizes).all()


@given(SIZES)
def test_no_shard_is_empty_and_no_record_lost(sizes: Sizes) -> None:
    """Every record has one place, places are numbered from 0 in every shard, and blocks cover them all."""
    keys = made_keys(sizes)

    layout = laid(keys, sizes)

    counts = np.bincount(layout.placement.shards, minlength=len(layout.placement.numbers))
    assert counts.min() > 0
    assert sorted(layout.order.tolist()) == list(range(len(keys.tokens)))
    places = sorted(zip(layout.placement.shards.tolist(), layout.positions().tolist(), strict=True))
    assert places == [(shard, place) for shard, count in enumerate(counts.tolist()) for place in range(count)]
    assert np.bincount(layout.block_shards, weights=layout.block_sizes).tolist() == counts.tolist()


@given(SIZES)
def test_shards_are_as_even_as_the_heaviest_group_allows(sizes: Sizes) -> None:
    """Of two shards neither has more tokens by more than the heaviest group, nor two groups of a stratum more."""
    keys = made_keys(sizes)
    hashes = placement_hashes(keys.record_ids, sizes[-1])
    groups = group_records(keys, hashes, seed=sizes[-1])

    placed = deal_groups(keys, groups, seed=sizes[-1], target_tokens=sizes[-2])

    firsts = groups.order[groups.starts]
    weights = np.add.reduceat(keys.tokens[groups.order], groups.starts)
    tokens = np.bincount(placed.shards, weights=keys.tokens)
    for department in np.unique(keys.departments):
        own = np.flatnonzero(placed.departments == department)
        heaviest = weights[keys.departments[firsts] == department].max()
        assert tokens[own].max() - tokens[own].min() <= heaviest
        for stratum in np.unique(keys.strata[firsts]):
            of_both = (keys.strata[firsts] == stratum) & (keys.departments[firsts] == department)
            counts = np.bincount(placed.shards[firsts[of_both]], minlength=len(tokens))[own]
            assert counts.max() - counts.min() <= 1


@given(SIZES)
def test_a_group_counts_for_its_first_record(sizes: Sizes) -> None:
    """The strata of later records do not move a group."""
    keys = made_keys(sizes)
    hashes = placement_hashes(keys.record_ids, sizes[-1])
    groups = group_records(keys, hashes, seed=sizes[-1])
    later = np.setdiff1d(groups.order, groups.order[groups.starts])
    strata = keys.strata.copy()
    strata[later] = 99

    one, two = laid(keys, sizes), laid(replace(keys, strata=strata), sizes)

    assert (one.placement.shards == two.placement.shards).all()


def test_heavy_groups_do_not_upset_the_balance() -> None:
    """With sizes as uneven as lognormal(1.5, 1.5) the fullest of 16 shards is 2 % over the mean, not 13 %."""
    random = np.random.default_rng(1)
    counts = np.maximum(1, random.lognormal(1.5, 1.5, 20_000)).astype(np.int64)
    num_records = int(counts.sum())
    keys = Keys(
        record_ids=random.integers(0, 256, (num_records, 16)).astype(np.uint8),
        row_digests=np.zeros((num_records, 16), dtype=np.uint8),
        text_hashes=np.zeros(num_records, dtype=np.uint64),
        strata=random.integers(0, 5, num_records).astype(np.uint64),
        departments=np.zeros(num_records, dtype=np.uint64),
        tokens=np.ceil(random.lognormal(6, 1, num_records)).astype(np.int64),
        groups=np.repeat(random.integers(0, 256, (20_000, 16)).astype(np.uint8), counts, axis=0),
        times=np.full(num_records, NO_TIME),
    )
    groups = group_records(keys, placement_hashes(keys.record_ids, 0), seed=0)

    placed = deal_groups(keys, groups, seed=0, target_tokens=-(-int(keys.tokens.sum()) // 16))

    tokens = np.bincount(placed.shards, weights=keys.tokens)
    assert len(tokens) == 16
    assert tokens.max() / tokens.mean() <= 1.02
    assert _dealt_like_records(keys, num_shards=16) >= 1.1


def _dealt_like_records(keys: Keys, *, num_shards: int) -> float:
    """Most over mean tokens if groups were dealt by hash, as single records are."""
    groups = group_records(keys, placement_hashes(keys.record_ids, 0), seed=0)
    strata = keys.strata[groups.order[groups.starts]]
    weights = np.add.reduceat(keys.tokens[groups.order], groups.starts)
    order = np.argsort(strata, kind="stable")
    names, starts, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    ranks = np.arange(len(order)) - np.repeat(starts, sizes)
    tokens = np.bincount((ranks + np.repeat(turns_of(names, 0), sizes)) % num_shards, weights=weights[order])
    return float(tokens.max() / tokens.mean())


@given(st.lists(st.tuples(st.integers(1, 900), st.booleans()), min_size=1, max_size=120), st.integers(1, 3_000))
def test_blocks_split_no_group_that_fits(rows: list[tuple[int, bool]], block_tokens: int) -> None:
    """Blocks cover the shard; a border lies inside a group only if the group alone is larger than a block."""
    tokens = np.array([row[0] for row in rows])
    is_first = np.array([True, *(row[1] for row in rows[1:])])

    counts = cut_grouped_blocks(tokens, is_first, block_tokens)

    assert counts.sum() == len(rows)
    assert counts.min() > 0
    groups = np.cumsum(is_first) - 1
    weights = np.bincount(groups, weights=tokens)
    for border in np.cumsum(counts)[:-1].tolist():
        assert is_first[border] or weights[groups[border]] > block_tokens
    blocks = np.add.reduceat(tokens, np.cumsum(counts) - counts)
    assert blocks.max() <= block_tokens + 2 * max(block_tokens, tokens.max())
