"""Who this process is, and which blocks are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UsageError
from scoring.assignment import RankIdentity, blocks_of, rank_identity
from tests.made_runs import MadeRecord, make_build

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
