"""Ranks agree exactly, a lost one is named within the timeout, and uneven work hangs nobody."""

from __future__ import annotations

import os
import time
from fractions import Fraction
from typing import Any

import pytest

from schemas.tally import ExactSum, Tally, pool
from scoring.assignment import RankIdentity
from scoring.sync import ControlPlane, control_plane
from tests.ranks import run_ranks

TIMEOUT = 2.0
# Sums that FP64 rounds otherwise in every order, with the smallest and largest numbers that there are.
LOSSES = [[0.1] * 7, [1e300, 5e-324], [-1e300, 1e16, 1.0], [], [2.0**-1074, 1 / 3]]


def tally_of_rank(rank: int) -> Tally:
    """What a rank adds."""
    return Tally(ExactSum.of(LOSSES[rank]), 2**40 + rank, rank, 3 * rank, 1)


def add_up(identity: RankIdentity) -> Tally:
    """Sum the tallies of all ranks."""
    with control_plane(identity, timeout_seconds=60) as plane:
        return plane.sum_exactly(tally_of_rank(identity.rank))


def exchange(identity: RankIdentity) -> list[list[Any]]:
    """Two gathers of different values."""
    with control_plane(identity, timeout_seconds=60) as plane:
        first = plane.gather("names", f"rank {identity.rank}")
        return [first, plane.gather("squares", identity.rank**2)]


def leave_early(identity: RankIdentity) -> str:
    """Rank 1 goes home before the step that the others wait for."""
    with control_plane(identity, timeout_seconds=TIMEOUT) as plane:
        if identity.rank != 1:
            plane.wait_for_all("scored")
    return "home"


def host_leaves_early(identity: RankIdentity) -> str:
    """Rank 0, which serves the store, goes home before the step."""
    with control_plane(identity, timeout_seconds=TIMEOUT) as plane:
        if identity.rank != 0:
            plane.wait_for_all("scored")
    return "home"


def die(identity: RankIdentity) -> str:
    """Rank 2 is killed where it stands."""
    with control_plane(identity, timeout_seconds=TIMEOUT) as plane:
        if identity.rank == 2:
            os.kill(os.getpid(), 9)
        plane.wait_for_all("scored")
    return "home"


def work_unevenly(identity: RankIdentity) -> float:
    """Rank 1 works for twice the timeout and shows that it lives; then all sum."""
    with control_plane(identity, timeout_seconds=TIMEOUT) as plane:
        stop = time.monotonic() + (2 * TIMEOUT if identity.rank == 1 else 0)
        while time.monotonic() < stop:
            time.sleep(0.05)
            plane.beat()
        return plane.sum_exactly(tally_of_rank(identity.rank)).loss_nats.to_float()


def work_silently(identity: RankIdentity) -> str:
    """Rank 1 hangs in its work."""
    with control_plane(identity, timeout_seconds=TIMEOUT) as plane:
        if identity.rank == 1:
            time.sleep(2 * TIMEOUT)
        plane.wait_for_all("scored")
    return "home"


def join(identity: RankIdentity) -> str:
    """Only meet."""
    with control_plane(identity, timeout_seconds=TIMEOUT):
        return "met"


@pytest.mark.parametrize("num_ranks", [2, 5])
def test_ranks_sum_exactly(num_ranks: int) -> None:
    """Every rank has the sum that fractions give, to the last unit of 2**-1074, and exact counts."""
    expected = sum((Fraction(loss) for losses in LOSSES[:num_ranks] for loss in losses), Fraction())

    outcomes = run_ranks(add_up, num_ranks)

    for outcome in outcomes.values():
        assert Fraction(outcome.value.loss_nats.units, 2**1074) == expected
        assert outcome.value == pool(map(tally_of_rank, range(num_ranks)))


def test_ranks_exchange_values() -> None:
    """A gather gives every rank the values of all, by rank."""
    outcomes = run_ranks(exchange, 3)

    assert [outcomes[rank].value for rank in range(3)] == [[["rank 0", "rank 1", "rank 2"], [0, 1, 4]]] * 3


def test_a_rank_that_never_comes_is_named() -> None:
    """Of three ranks one is never started: the others say so when the timeout is over."""
    outcomes = run_ranks(join, 3, absent=[2])

    assert outcomes[0].error == outcomes[1].error == "TemporaryError"
    assert "start: rank 2 gave no sign of life for 2 s" in outcomes[0].message
    assert outcomes[0].seconds < 3 * TIMEOUT


@pytest.mark.slow
def test_ranks_without_their_host_fail_in_time() -> None:
    """Where nobody serves the store, a rank gives up after the timeout instead of waiting for ever."""
    outcomes = run_ranks(join, 2, absent=[0])

    assert outcomes[1].error == "TemporaryError"
    assert "rank 1 of 2 could not join the others within 2 s" in outcomes[1].message


def test_a_rank_that_leaves_early_is_named() -> None:
    """A barrier that one rank skips is no hang: it is named, with the step, and the others end as temporary."""
    outcomes = run_ranks(leave_early, 4)

    assert outcomes[1].value == "home"
    assert {outcomes[rank].error for rank in (0, 2, 3)} == {"TemporaryError"}
    assert "scored: rank 1 gave no sign of life for 2 s; look at its status" in outcomes[0].message
    assert max(outcome.seconds for outcome in outcomes.values()) < 3 * TIMEOUT


def test_a_host_that_leaves_early_hangs_nobody() -> None:
    """The same holds for rank 0, on whose store the others wait."""
    outcomes = run_ranks(host_leaves_early, 2)

    assert outcomes[1].error == "TemporaryError"
    assert "scored: rank 0 gave no sign of life" in outcomes[1].message
    assert max(outcome.seconds for outcome in outcomes.values()) < 5 * TIMEOUT


def test_a_rank_that_dies_is_named() -> None:
    """So does SIGKILL."""
    outcomes = run_ranks(die, 3)

    assert (outcomes[2].value, outcomes[2].error) == (None, "")
    assert {outcomes[rank].error for rank in (0, 1)} == {"TemporaryError"}
    assert "scored: rank 2 gave no sign of life" in outcomes[0].message


@pytest.mark.slow
def test_a_rank_that_hangs_is_named() -> None:
    """A process that lives but does no work is as lost as a dead one."""
    outcomes = run_ranks(work_silently, 2)

    assert "scored: rank 1 gave no sign of life" in outcomes[0].message
    assert outcomes[0].seconds < 3 * TIMEOUT


def test_uneven_work_is_waited_for() -> None:
    """Work for longer than the timeout ends well as long as the rank gives signs of life."""
    outcomes = run_ranks(work_unevenly, 2)

    assert {outcome.error for outcome in outcomes.values()} == {""}
    assert outcomes[0].value == outcomes[1].value == pool(map(tally_of_rank, range(2))).loss_nats.to_float()
    assert outcomes[0].seconds > 1.5 * TIMEOUT


def test_a_single_process_needs_nobody() -> None:
    """Without torchrun every exchange is with oneself."""
    with control_plane(RankIdentity(), timeout_seconds=TIMEOUT) as plane:
        plane.wait_for_all("anything")
        plane.beat()

        assert plane.gather("values", 7) == [7]
        assert plane.sum_exactly(tally_of_rank(1)) == tally_of_rank(1)
        assert isinstance(plane, ControlPlane)
