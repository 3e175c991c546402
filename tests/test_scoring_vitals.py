"""Speed, time left and silence of a rank, as its status file tells them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.manifests import RankStatus
from scoring.rates import RATE_SECONDS, RecentRate
from scoring.vitals import RESTART_SECONDS, SILENT_SECONDS, STARTING_SECONDS, is_over, vitals_line, vitals_of

NOW = 10_000.0


def status_of(**fields: Any) -> RankStatus:
    """A rank that has scored 1,000 of 4,000 estimated tokens in 50 s."""
    usual = {
        "run_id": None,
        "rank": 3,
        "num_ranks": 4,
        "state": "scoring",
        "exit_code": None,
        "message": "",
        "num_blocks_done": 1,
        "num_blocks_planned": 4,
        "num_tokens": 1100,
        "num_estimated_done": 1000,
        "num_estimated_planned": 4000,
        "num_recent_tokens": 1100,
        "recent_seconds": 50.0,
        "scoring_seconds": 50.0,
        "started_at": NOW - 80,
        "updated_at": NOW - 2,
    }
    return RankStatus(**{**usual, **fields})


@given(steps=st.lists(st.tuples(st.floats(0.01, 50), st.integers(0, 1000)), min_size=1, max_size=60))
def test_a_rate_is_of_the_last_minute_or_of_all(steps: list[tuple[float, int]]) -> None:
    """Whatever the pace of notes, the window is all that was noted, or the shortest one of at least a minute."""
    now, count, noted = 0.0, 0, [(0.0, 0)]
    rate = RecentRate()
    rate.note(0.0, 0)

    for seconds, tokens in steps:
        now, count = now + seconds, count + tokens
        noted.append((now, count))
        rate.note(now, count)

    long_ago = [note for note in noted if now - note[0] >= RATE_SECONDS]
    since, before = long_ago[-1] if long_ago else noted[0]
    assert (rate.num_tokens, rate.seconds) == (count - before, now - since)
    assert rate.total_seconds == now


def test_a_clock_that_is_set_back_gives_no_negative_time() -> None:
    """The rate is unknown for a while, and nothing fails."""
    rate = RecentRate()
    rate.note(100.0, 0)
    rate.note(40.0, 10)

    assert (rate.seconds, rate.num_tokens, rate.total_seconds) == (0.0, 10, 0.0)


@pytest.mark.parametrize(
    ("fields", "rate", "eta"),
    [
        ({}, 22.0, 148.0),
        ({"num_estimated_done": 0}, 22.0, 4000 / 22 - 2),
        ({"num_estimated_done": 4000}, 22.0, 0.0),
        ({"num_recent_tokens": 0, "recent_seconds": 0.0, "scoring_seconds": 0.0, "num_estimated_done": 0}, None, None),
        ({"state": "waiting"}, 22.0, None),
        ({"state": "failed", "exit_code": 75}, 22.0, None),
    ],
)
def test_time_left_follows_from_estimated_tokens(fields: dict[str, Any], rate: float | None, eta: float | None) -> None:
    """Estimated tokens still to do, at the pace of those done; at the computed rate before any block is done."""
    found = vitals_of(status_of(**fields), now=NOW)

    assert found.tokens_per_second == rate
    assert found.eta_seconds == (None if eta is None else pytest.approx(eta))


@pytest.mark.parametrize(
    ("seconds", "words"), [(50.0, "22 tokens/s since it began"), (60.0, "22 tokens/s in the last minute")]
)
def test_a_rate_says_of_which_time_it_is(seconds: float, words: str) -> None:
    """Of the last minute, or since the rank began to score."""
    status = status_of(num_recent_tokens=round(22 * seconds), recent_seconds=seconds)

    assert words in vitals_line(vitals_of(status, now=NOW))


def test_a_rank_that_does_not_write_is_silent() -> None:
    """A minute without a word is told, unless the rank has ended; a clock ahead of ours is no silence."""
    quiet, fresh = NOW - SILENT_SECONDS - 30, NOW + 5

    silent = vitals_of(status_of(updated_at=quiet), now=NOW)
    ended = vitals_of(status_of(updated_at=quiet, state="failed", exit_code=75, message="disk full"), now=NOW)
    ahead = vitals_of(status_of(updated_at=fresh), now=NOW)

    assert (silent.is_silent, ended.is_silent, ahead.is_silent) == (True, False, False)
    assert "SILENT for 90 s" in vitals_line(silent)
    assert vitals_line(ended).endswith("last heartbeat 90 s ago, exit code 75: disk full")
    assert ahead.age_seconds == 0


@pytest.mark.parametrize(("age", "expected"), [(STARTING_SECONDS - 1, False), (STARTING_SECONDS + 1, True)])
def test_a_rank_that_loads_for_minutes_is_not_silent(age: float, expected: bool) -> None:
    """A large model takes long to read, and nothing can be written meanwhile."""
    assert vitals_of(status_of(state="starting", updated_at=NOW - age), now=NOW).is_silent == expected


@pytest.mark.parametrize(
    ("ages_and_codes", "expected"),
    [
        ([(1, None), (1, None)], False),
        ([(RESTART_SECONDS + 1, 75), (1, None)], False),
        ([(1, 75), (1, 143)], False),
        ([(RESTART_SECONDS + 1, 75), (SILENT_SECONDS + 1, None)], True),
        ([(RESTART_SECONDS + 1, 0), (RESTART_SECONDS + 1, 143)], True),
        ([(SILENT_SECONDS + 1, None)], True),
    ],
)
def test_a_run_is_over_when_nobody_will_speak(ages_and_codes: list[tuple[float, int | None]], expected: bool) -> None:
    """All have ended or fallen silent, and torchrun has had the time to start them again."""
    ranks = [vitals_of(status_of(updated_at=NOW - age, exit_code=code), now=NOW) for age, code in ages_and_codes]

    assert is_over(ranks) == expected
