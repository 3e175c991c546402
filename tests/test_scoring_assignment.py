"""Who this process is, and which blocks are its own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.partials import BlockKey
from scoring.assignment import RankIdentity, assign, blocks_of, imbalance, rank_identity
from tests.made_runs import MadeRecord, make_build
from tests.sessions import key_of

works = st.dictionaries(st.integers(0, 9999).map(key_of), st.integers(0, 10**6), max_size=60)
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
}


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


def test_blocks_come_in_order_and_can_be_limited(tmp_path: Path) -> None:
    """All row groups of all shards, by shard and number; a limit keeps the first of them."""
    records = [MadeRecord(f"n{index}", department="ab"[index % 2]) for index in range(13)]
    manifest = make_build(tmp_path, records).manifest

    blocks = blocks_of(manifest)

    assert list(blocks) == sorted(blocks)
    assert sum(blocks.values()) == sum(shard.estimated_tokens for shard in manifest.shards)
    assert len(blocks) == sum(len(shard.blocks) for shard in manifest.shards)
    assert list(blocks_of(manifest, limit=3)) == list(blocks)[:3]


def test_torchrun_variables_make_the_identity() -> None:
    """Every variable that torchrun sets is read."""
    identity = rank_identity(TORCHRUN)

    assert identity == RankIdentity(
        rank=5,
        num_ranks=8,
        local_rank=1,
        num_local_ranks=4,
        address="node-a",
        port=29500,
        store_is_hosted=True,
    )


def test_a_plain_process_is_rank_0_of_1() -> None:
    """Without torchrun there is nobody to meet."""
    assert rank_identity({"HOME": "/"}) == RankIdentity(rank=0, num_ranks=1, address=None)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_half_of_torchruns_variables_are_refused(name: str) -> None:
    """A process that cannot know its rank does not take itself for the only one."""
    environment = {key: value for key, value in TORCHRUN.items() if key != name}

    with pytest.raises(UsageError, match="start with torchrun"):
        rank_identity(environment)


@pytest.mark.parametrize(("name", "value"), [("RANK", "x"), ("RANK", "8"), ("RANK", "-1"), ("MASTER_PORT", "")])
def test_impossible_variables_are_refused(name: str, value: str) -> None:
    """A rank that is no number, or beyond the world, is a usage error."""
    with pytest.raises(UsageError, match="start with torchrun"):
        rank_identity({**TORCHRUN, name: value})


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
