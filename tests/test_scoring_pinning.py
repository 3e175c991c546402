"""Ranks of one node are bound to cores of their own, near each other, and no number depends on it."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.assignment import RankIdentity
from scoring.pinning import allowed_cores, bound_to, by_nearness, cores_for, share_of_cores
from scoring.run import bound_rank
from scoring.sync import control_plane
from tests.launches import settings_of
from tests.ranks import run_ranks


def cores_inside(identity: RankIdentity, *, pin: str, num_threads: int) -> tuple[list[int], list[int]]:
    """The cores of a rank while it is bound, and after."""
    settings = settings_of(Path("model"), pin=pin, threads_per_rank=num_threads)
    with control_plane(identity, timeout_seconds=60) as plane:
        with bound_rank(settings, identity, plane):
            inside = allowed_cores()
        return inside, allowed_cores()


@given(num_cores=st.integers(0, 200), num_ranks=st.integers(1, 70))
def test_shares_part_the_cores(num_cores: int, num_ranks: int) -> None:
    """Every core is one rank's, and no rank has two cores more than another."""
    shares = [share_of_cores(range(num_cores), local_rank=rank, num_local_ranks=num_ranks) for rank in range(num_ranks)]

    assert [core for share in shares for core in share] == list(range(num_cores))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_cores_are_ordered_by_memory_and_siblings(tmp_path: Path) -> None:
    """Node by node, with the two hardware threads of a core beside each other; unknown places count by number."""
    for node, cores in enumerate(["0-1,4-5", "2-3,6-7"]):
        (tmp_path / "node" / f"node{node}").mkdir(parents=True)
        (tmp_path / "node" / f"node{node}" / "cpulist").write_text(f"{cores}\n", encoding="ascii")
    for core in range(8):
        folder = tmp_path / "cpu" / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n", encoding="ascii")

    known = by_nearness(range(8), nodes=tmp_path / "node", cpus=tmp_path / "cpu")
    unknown = by_nearness([5, 3, 4], nodes=tmp_path / "none", cpus=tmp_path / "none")

    assert known == [0, 4, 1, 5, 2, 6, 3, 7]
    assert unknown == [3, 4, 5]


@pytest.mark.parametrize(
    ("granted", "num_threads", "expected"),
    [
        ([[0, 1, 2, 3]] * 2, 2, [2, 3]),
        ([[0, 1, 2, 3]] * 2, 3, []),
        ([[0, 1], [2, 3]], 1, []),
        ([[0, 1, 2, 3]] * 8, 1, []),
        ([[0, 1, 2, 3]], 2, []),
    ],
)
def test_ranks_are_bound_where_it_does_no_harm(granted: list[list[int]], num_threads: int, expected: list[int]) -> None:
    """Not with more threads than cores, not where the launcher has bound them, not with nothing to share out."""
    local_rank = min(1, len(granted) - 1)

    cores = cores_for(granted, local_rank=local_rank, num_threads=num_threads, ordered=granted[local_rank])

    assert list(cores) == expected


def test_a_bound_thread_is_let_go() -> None:
    """Afterwards the process may use what it could use before."""
    before = os.sched_getaffinity(0)

    with bound_to([min(before)]):
        inside = os.sched_getaffinity(0)

    assert inside == {min(before)}
    assert os.sched_getaffinity(0) == before


def test_ranks_of_a_node_have_cores_of_their_own() -> None:
    """Two processes with one thread each compute on disjoint cores; with --pin off both use all of them."""
    if len(allowed_cores()) < 2:
        pytest.skip("needs two cores")

    pinned = run_ranks(functools.partial(cores_inside, pin="auto", num_threads=1), 2)
    free = run_ranks(functools.partial(cores_inside, pin="off", num_threads=1), 2)

    (first, after), (second, _) = (pinned[rank].value for rank in range(2))
    assert not set(first) & set(second)
    assert set(first) | set(second) == set(after) == set(allowed_cores())
    assert {tuple(cores) for rank in range(2) for cores in free[rank].value} == {tuple(allowed_cores())}
