"""Blocks go to ranks longest first: each once, in any order of asking, and evenly."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from schemas.dealing import assign, imbalance
from schemas.partials import BlockKey


def key_of(number: int) -> BlockKey:
    """A block of some shard."""
    return BlockKey(f"d-00000000000a-{number // 7:05d}", number % 7)


works = st.dictionaries(st.integers(0, 9999).map(key_of), st.integers(0, 10**6), max_size=60)


@given(works, st.integers(1, 12))
def test_each_block_is_dealt_once(blocks: dict[BlockKey, int], num_ranks: int) -> None:
    """The ranks' shares are a partition of the blocks, for any world size."""
    dealt = assign(blocks, num_ranks)

    assert len(dealt) == num_ranks
    assert sorted(key for keys in dealt for key in keys) == sorted(blocks)


@given(works, st.integers(1, 12), st.randoms())
def test_the_deal_does_not_depend_on_order(blocks: dict[BlockKey, int], num_ranks: int, shuffle: random.Random) -> None:
    """Every rank finds the same deal, however its dictionary was filled."""
    items = list(blocks.items())
    shuffle.shuffle(items)

    assert assign(dict(items), num_ranks) == assign(blocks, num_ranks)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_the_busiest_rank_is_within_the_bound_of_lpt(sizes: list[int], num_ranks: int) -> None:
    """No rank has more than 4/3 - 1/(3m) of the best possible makespan (Graham 1969)."""
    blocks = {key_of(index): size for index, size in enumerate(sizes)}

    dealt = assign(blocks, num_ranks)

    busiest = max(sum(blocks[key] for key in keys) for keys in dealt)
    assert 3 * num_ranks * busiest <= (4 * num_ranks - 1) * best_makespan(sizes, num_ranks)


@given(st.integers(1, 16), st.integers(48, 64), st.randoms(use_true_random=False))
def test_many_similar_blocks_are_even(num_ranks: int, per_rank: int, draw: random.Random) -> None:
    """With 48 blocks of similar size or more for each rank, the busiest has at most 2 % more than the mean."""
    blocks = {key_of(index): draw.randint(700, 1300) for index in range(num_ranks * per_rank)}

    assert 1.0 <= imbalance(blocks, assign(blocks, num_ranks)) <= 1.02


def test_no_work_is_even() -> None:
    """Ranks without any block are balanced, not divided by zero."""
    assert assign({}, 3) == [[], [], []]
    assert imbalance({}, [[], [], []]) == 1.0


def best_makespan(sizes: list[int], num_ranks: int) -> int:
    """The smallest possible largest load, by trying all deals."""
    loads = {(0,) * num_ranks}
    for size in sizes:
        loads = {
            tuple(sorted((*load[:rank], load[rank] + size, *load[rank + 1 :])))
            for load in loads
            for rank in range(num_ranks)
        }
    return min(map(max, loads))
