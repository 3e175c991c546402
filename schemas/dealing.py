"""The one rule by which blocks go to ranks, so that a build can foretell how even a run will be.

Blocks are dealt longest first, each to the rank with the least work so far (LPT; Graham 1969, at most 4/3 of the best
makespan, and close to it for many small blocks).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import TypeVar

from schemas.partials import BlockKey

KeyT = TypeVar("KeyT", BlockKey, int)


def assign(blocks: Mapping[KeyT, int], num_ranks: int) -> list[list[KeyT]]:
    """Deal blocks to ranks, longest first.

    Args:
        blocks: Estimated tokens by block.
        num_ranks: Ranks that share the work.

    Returns:
        The blocks of each rank, longest first; some ranks may have none.
    """
    loads = [(0, rank) for rank in range(num_ranks)]
    dealt: list[list[KeyT]] = [[] for _ in range(num_ranks)]
    for key in sorted(blocks, key=lambda key: (-blocks[key], key)):
        load, rank = heapq.heappop(loads)
        dealt[rank].append(key)
        heapq.heappush(loads, (load + blocks[key], rank))
    return dealt


def imbalance(blocks: Mapping[KeyT, int], dealt: Iterable[Iterable[KeyT]]) -> float:
    """Estimated tokens of the busiest rank over the mean; 1 is even, and 1 also when there is no work."""
    loads = [sum(blocks[key] for key in keys) for keys in dealt]
    return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0
