"""The balance report says what a count by hand says, and does not depend on the order of the records."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dealing import assign
from sharding.balance import NUMS_RANKS, CaseMix, chi_square, measure_balance, total_variations
from sharding.config import ShardingSettings
from sharding.layout import lay_out
from sharding.placement import Keys, placement_hashes
from sharding.records import code_name

SIZES = st.tuples(st.integers(1, 300), st.integers(1, 12), st.integers(1, 40_000), st.integers(0, 5))
COUNTS = st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=5).filter(
    lambda rows: all(map(any, rows))
)
SETTINGS = {"columns": {"text": "t"}, "block_tokens": 3_000}


def made_keys(num_records: int, num_strata: int, seed: int) -> Keys:
    """Records of strata of three departments."""
    random = np.random.default_rng(seed)
    strata = random.integers(0, num_strata, num_records).astype(np.uint64)
    return Keys(
        record_ids=random.integers(0, 256, (num_records, 16)).astype(np.uint8),
        row_digests=random.integers(0, 256, (num_records, 16)).astype(np.uint8),
        text_hashes=random.integers(0, 2**60, num_records).astype(np.uint64),
        strata=strata,
        departments=strata % np.uint64(3),
        tokens=random.integers(1, 1_000, num_records),
    )


def mix_of(rows: list[list[int]]) -> CaseMix:
    """A case mix from a full table of counts, one row per owner."""
    cells = [(owner, stratum, count) for owner, row in enumerate(rows) for stratum, count in enumerate(row) if count]
    return CaseMix(*(np.array(column, dtype=np.int64) for column in zip(*cells, strict=True)))


@given(COUNTS)
def test_total_variation_is_half_the_sum_of_differences(rows: list[list[int]]) -> None:
    """As defined, over the full table with its zeros."""
    table = np.array(rows)
    shares = table / table.sum(axis=1, keepdims=True)
    whole = table.sum(axis=0) / table.sum()

    found = total_variations(mix_of(rows))

    assert found == pytest.approx(np.abs(shares - whole).sum(axis=1) / 2, abs=1e-12)


@given(COUNTS)
def test_chi_square_is_pearsons(rows: list[list[int]]) -> None:
    """As defined, over all rows and columns that have a count."""
    table = np.array(rows)
    table = table[:, table.any(axis=0)]
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()

    statistic, freedom = chi_square(mix_of(rows))

    assert statistic == pytest.approx(((table - expected) ** 2 / expected).sum(), abs=1e-9)
    assert freedom == (table.shape[0] - 1) * (table.shape[1] - 1)


def test_equal_mixes_are_at_no_distance() -> None:
    """Exactly none, whatever the sizes."""
    mix = mix_of([[1, 2, 3], [10, 20, 30], [7, 14, 21]])

    assert total_variations(mix) == [0.0, 0.0, 0.0]
    assert chi_square(mix) == (0.0, 4)


def test_disjoint_mixes_are_far_apart() -> None:
    """Two equal halves without a stratum in common differ by one half from the whole."""
    mix = mix_of([[4, 0, 0], [0, 4, 0]])

    assert total_variations(mix) == [0.5, 0.5]
    assert chi_square(mix) == (8.0, 1)


@given(SIZES)
def test_the_report_is_that_of_a_count_by_hand(sizes: tuple[int, int, int, int]) -> None:
    """Departments and ranks, counted record by record."""
    num_records, num_strata, target, seed = sizes
    keys = made_keys(num_records, num_strata, seed)
    layout = lay_out(keys, placement_hashes(keys.record_ids, 0), ShardingSettings(**SETTINGS, target_tokens=target))

    found = measure_balance(keys, layout)

    shards = layout.placement.shards
    for entry, department in zip(found.departments, np.unique(keys.departments).tolist(), strict=True):
        own = keys.departments == department
        loads = list(Counter(np.repeat(shards[own], keys.tokens[own]).tolist()).values())
        assert entry.code == code_name(department)
        assert entry.num_shards == len(loads)
        assert entry.num_strata == len(np.unique(keys.strata[own]))
        assert entry.token_max_over_mean == pytest.approx(max(loads) * len(loads) / sum(loads))
        assert entry.total_variation == pytest.approx(_furthest(shards[own], keys.strata[own]))
    blocks = np.empty(num_records, dtype=np.int64)
    blocks[layout.order] = np.repeat(np.arange(len(layout.block_sizes)), layout.block_sizes)
    weights = dict(enumerate(np.bincount(blocks, weights=keys.tokens).astype(int).tolist()))
    assert [entry.num_ranks for entry in found.ranks] == list(NUMS_RANKS)
    for rank in found.ranks:
        dealt = assign(weights, rank.num_ranks)
        ranks = {block: number for number, own in enumerate(dealt) for block in own}
        loads = [sum(weights[block] for block in own) for own in dealt]
        owners = np.array([ranks[block] for block in blocks.tolist()])
        assert rank.token_max_over_mean == pytest.approx(max(loads) * len(loads) / sum(loads))
        assert rank.total_variation == pytest.approx(_furthest(owners, keys.strata))


def _furthest(owners: np.ndarray, strata: np.ndarray) -> float:
    """Largest total variation between an owner's records and all of them."""
    names = np.unique(strata)
    whole = np.array([(strata == name).mean() for name in names])
    distances = [
        np.abs(np.array([(strata[owners == owner] == name).mean() for name in names]) - whole).sum() / 2
        for owner in np.unique(owners)
    ]
    return float(max(distances))


@given(SIZES)
def test_the_report_does_not_depend_on_order(sizes: tuple[int, int, int, int]) -> None:
    """Any permutation of the records gives the same bits."""
    num_records, num_strata, target, seed = sizes
    keys = made_keys(num_records, num_strata, seed)
    moved = keys.take(np.random.default_rng(seed).permutation(num_records))
    settings = ShardingSettings(**SETTINGS, target_tokens=target)

    one, two = (
        measure_balance(part, lay_out(part, placement_hashes(part.record_ids, 0), settings)) for part in (keys, moved)
    )

    assert one == two


def test_one_rank_is_even() -> None:
    """It has all blocks and the case mix of the build."""
    keys = made_keys(500, 9, 0)
    layout = lay_out(keys, placement_hashes(keys.record_ids, 0), ShardingSettings(**SETTINGS))

    first = measure_balance(keys, layout).ranks[0]

    assert (first.num_ranks, first.token_max_over_mean, first.total_variation) == (1, 1.0, 0.0)


def test_stratified_shards_have_the_case_mix_of_their_department() -> None:
    """Of 60,000 records in nine strata no shard is a hundredth away, which random dealing would be."""
    keys = made_keys(60_000, 9, 0)
    layout = lay_out(keys, placement_hashes(keys.record_ids, 0), ShardingSettings(**SETTINGS, target_tokens=500_000))

    found = measure_balance(keys, layout)

    assert all(entry.num_shards > 10 for entry in found.departments)
    assert max(entry.total_variation for entry in found.departments) < 0.01
    assert all(entry.chi_square < entry.degrees_of_freedom / 10 for entry in found.departments)
