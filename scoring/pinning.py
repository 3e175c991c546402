"""Each rank of a node on cores of its own, near each other: threads that wander lose caches, and memory gets far away.

Ranks share out the cores that they are allowed, node by node of the machine's memory (NUMA) and core by core, so that
no two ranks share a core's hardware threads where that can be avoided. No number depends on it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

NODES = Path("/sys/devices/system/node")
CPUS = Path("/sys/devices/system/cpu")


def allowed_cores() -> list[int]:
    """Numbers of the cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def share_of_cores(ordered: Sequence[int], *, local_rank: int, num_local_ranks: int) -> Sequence[int]:
    """A rank's part of a node's cores; the parts of all ranks are disjoint and cover all cores."""
    start, stop = (len(ordered) * number // num_local_ranks for number in (local_rank, local_rank + 1))
    return ordered[start:stop]


def by_nearness(cores: Collection[int], *, nodes: Path = NODES, cpus: Path = CPUS) -> list[int]:
    """Cores by memory node, then by physical core; by number where the system does not tell."""
    node_of = {
        core: number
        for number, path in enumerate(sorted(nodes.glob("node[0-9]*"), key=lambda path: int(path.name[4:])))
        for core in _listed(path / "cpulist")
    }
    first_sibling = {
        core: min(_listed(cpus / f"cpu{core}" / "topology" / "thread_siblings_list"), default=core) for core in cores
    }
    return sorted(cores, key=lambda core: (node_of.get(core, 0), first_sibling[core], core))


def cores_for(
    granted: Sequence[Sequence[int]], *, local_rank: int, num_threads: int, ordered: Sequence[int]
) -> Sequence[int]:
    """The cores that a rank is bound to; none where binding would do harm.

    Args:
        granted: What each rank of this node may use, by local rank.
        local_rank: Of this rank.
        num_threads: Compute threads of this rank.
        ordered: This rank's cores by nearness.
    """
    # Where the launcher has given each rank its own cores, they are shared out already.
    if local_rank >= len(granted) or any(set(other) != set(ordered) for other in granted):
        return ()
    # All ranks are bound or none: one that is free would sit on the others' cores.
    if len(granted) == 1 or num_threads > len(ordered) // len(granted):
        return ()
    return share_of_cores(ordered, local_rank=local_rank, num_local_ranks=len(granted))


@contextmanager
def bound_to(cores: Collection[int]) -> Iterator[None]:
    """Keep this thread, and those that it starts, on some cores; on all that it had if there are none."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    with suppress(OSError):  # a core may have been taken away meanwhile; any other will do
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)


def _listed(path: Path) -> list[int]:
    """The numbers of a file such as ``0-3,8``; none if it cannot be read."""
    try:
        parts = path.read_text(encoding="ascii").strip().split(",")
        ends = [[int(end) for end in part.split("-")] for part in parts if part]
    except (OSError, ValueError):
        return []
    return [number for pair in ends for number in range(pair[0], pair[-1] + 1)]
