"""Who this process is, and which blocks are its own.

Every rank computes the same deal of blocks from the manifest alone, by the rule of ``schemas.dealing``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.errors import UsageError
from schemas.manifests import BuildManifest
from schemas.partials import BlockKey


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """What torchrun tells a process of itself; a plain process is rank 0 of 1.

    Attributes:
        rank: Number of this process among all.
        num_ranks: All processes (WORLD_SIZE).
        local_rank: Number of this process on its node.
        num_local_ranks: Processes of this node.
        address: Host of the rendezvous store; none without torchrun.
        port: Its port.
        store_is_hosted: torchrun's agent serves the store, so no rank has to.
    """

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0
    num_local_ranks: int = 1
    address: str | None = None
    port: int = 0
    store_is_hosted: bool = False


def rank_identity(environment: Mapping[str, str] | None = None) -> RankIdentity:
    """Read torchrun's variables.

    Raises:
        UsageError: some are set and others missing, no numbers, or no rank of that world.
    """
    environment = os.environ if environment is None else environment
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return RankIdentity()
    try:
        identity = RankIdentity(
            rank=int(environment["RANK"]),
            num_ranks=int(environment["WORLD_SIZE"]),
            local_rank=int(environment.get("LOCAL_RANK", 0)),
            num_local_ranks=int(environment.get("LOCAL_WORLD_SIZE", 1)),
            address=environment["MASTER_ADDR"],
            port=int(environment["MASTER_PORT"]),
            store_is_hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        )
    except (KeyError, ValueError):
        raise UsageError(
            "RANK or WORLD_SIZE is set but the other, MASTER_ADDR, MASTER_PORT or a number is wrong; start with "
            "torchrun, or unset both"
        ) from None
    if not 0 <= identity.rank < identity.num_ranks:
        raise UsageError(
            f"RANK {identity.rank} is none of WORLD_SIZE {identity.num_ranks}; start with torchrun, or unset both"
        )
    return identity


def blocks_of(manifest: BuildManifest, *, limit: int | None = None) -> dict[BlockKey, int]:
    """Every block of a build with its estimated tokens, in the order of shard and block; the first ``limit`` only."""
    blocks = {
        BlockKey(shard.shard_id, index): block.estimated_tokens
        for shard in sorted(manifest.shards, key=lambda shard: shard.shard_id)
        for index, block in enumerate(shard.blocks)
    }
    return dict(list(blocks.items())[:limit])
