"""A build's arrangement before it is written: shard of each record, order within the shards, cut into blocks.

A pure function of the set of records and the settings.

Shapes: N records, B blocks, S shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sharding.config import ShardingSettings
from sharding.grouping import deal_groups, group_records, is_first_of_group
from sharding.placement import (
    Hashes,
    Keys,
    Numbers,
    Placement,
    cut_blocks,
    cut_grouped_blocks,
    deal,
    order_within_shards,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the records stand.

    Attributes:
        placement: Shard of each record.
        order: Rows shard by shard, in the order of the shard, int64 [N].
        block_sizes: Records of each block, shard by shard, int64 [B].
        block_shards: Shard of each block, int64 [B].
        block_tokens: Estimated tokens to which blocks were cut.
    """

    placement: Placement
    order: Numbers
    block_sizes: Numbers
    block_shards: Numbers
    block_tokens: int

    def positions(self) -> NDArray[np.int32]:
        """Place of each record in its shard, from 0; int32 [N]."""
        sizes = np.bincount(self.placement.shards, minlength=len(self.placement.departments))
        places = np.empty(len(self.order), dtype=np.int32)
        places[self.order] = np.arange(len(self.order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return places


def lay_out(keys: Keys, hashes: Hashes, settings: ShardingSettings) -> Layout:
    """Arrange all records.

    Args:
        keys: Without duplicates, of shape [N]; with groups and times if the settings ask for groups.
        hashes: Placement hashes of the record ids.
        settings: Seed, sizes and grouping.
    """
    if settings.group == "none":
        placement = deal(keys, hashes, seed=settings.seed, target_tokens=settings.target_tokens)
        order = order_within_shards(keys, hashes, placement.shards)
        is_first = None
    else:
        groups = group_records(keys, hashes, seed=settings.seed)
        placement = deal_groups(keys, groups, seed=settings.seed, target_tokens=settings.target_tokens)
        inner = np.argsort(placement.shards[groups.order], kind="stable")
        order, is_first = groups.order[inner], is_first_of_group(groups)[inner]
    block_tokens = settings.block_tokens_for(int(keys.tokens.sum()))
    tokens = keys.tokens[order]
    sizes = np.bincount(placement.shards, minlength=len(placement.departments))
    counts = []
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        own = slice(stop - size, stop)
        if is_first is None:
            counts.append(cut_blocks(tokens[own], block_tokens))
        else:
            counts.append(cut_grouped_blocks(tokens[own], is_first[own], block_tokens))
    return Layout(
        placement=placement,
        order=order,
        block_sizes=np.concatenate(counts),
        block_shards=np.repeat(np.arange(len(sizes)), [len(part) for part in counts]),
        block_tokens=block_tokens,
    )
