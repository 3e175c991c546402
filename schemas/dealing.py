"""The one rule by which blocks go to ranks, so that a build can foretell how even a run will be.

Blocks are dealt longest first, each to the rank with the least work so far (LPT; Graham 1969, at most 4/3 of the best
makespan, and close to it for many small blocks). Blocks that not every rank may read come before the others, those with
the fewest ranks first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from schemas.partials import BlockKey

KeyT = TypeVar("KeyT", BlockKey, int)


def assign(
    blocks: Mapping[KeyT, int], num_ranks: int, allowed: Callable[[KeyT], Sequence[int]] | None = None
) -> list[list[KeyT]]:
    """Deal blocks to ranks, longest first.

    Args:
        blocks: Estimated tokens by block.
        num_ranks: Ranks that share the work.
        allowed: The ranks that may have a block, at least one; all when absent.

    Returns:
        The blocks of each rank, longest first; some ranks may have none.
    """
    dealt: list[list[KeyT]] = [[] for _ in range(num_ranks)]
    ranks = {key: allowed(key) for key in blocks} if allowed else {}
    bound = {key: found for key, found in ranks.items() if len(found) < num_ranks}
    loads = [0] * num_ranks
    for key in sorted(bound, key=lambda key: (len(bound[key]), -blocks[key], key)):
        rank = min(bound[key], key=lambda rank: (loads[rank], rank))
        dealt[rank].append(key)
        loads[rank] += blocks[key]
    heap = [(load, rank) for rank, load in enumerate(loads)]
    heapq.heapify(heap)
    for key in sorted(blocks.keys() - bound.keys(), key=lambda key: (-blocks[key], key)):
        load, rank = heapq.heappop(heap)
        dealt[rank].append(key)
        heapq.heappush(heap, (load + blocks[key], rank))
    return dealt


def imbalance(blocks: Mapping[KeyT, int], dealt: Iterable[Iterable[KeyT]]) -> float:
    """Estimated tokens of the busiest rank over the mean; 1 is even, and 1 also when there is no work."""
    loads = [sum(blocks[key] for key in keys) for keys in dealt]
    return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0
