"""What a status file tells of its rank at some moment: speed, what is left, and whether it still speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.manifests import RankStatus
from scoring.rates import RATE_SECONDS

# A rank at work writes every few seconds, after a tile; one that waits, while it waits.
SILENT_SECONDS = 60.0
# One that starts reads, digests and lays out weights without a word.
STARTING_SECONDS = 600.0
# How long a launch that has failed on every rank may take to be started again by torchrun.
RESTART_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """One rank at one moment.

    Attributes:
        status: What it wrote.
        age_seconds: Since it wrote.
        tokens_per_second: Computed tokens; None before there are any.
        is_of_last_minute: Of the last minute, else since the rank began to score.
        eta_seconds: Until its blocks are scored, by the build's estimates; None where nothing tells.
        is_silent: It has not ended, and has not written for a minute, or for ten while it starts: lost, hung, or in a
            very long step.
    """

    status: RankStatus
    age_seconds: float
    tokens_per_second: float | None
    is_of_last_minute: bool
    eta_seconds: float | None
    is_silent: bool


def vitals_of(status: RankStatus, *, now: float) -> Vitals:
    """Judge a status; ``now`` is UTC seconds since the epoch."""
    age = max(0.0, now - status.updated_at)
    patience = STARTING_SECONDS if status.state == "starting" else SILENT_SECONDS
    rate = status.num_recent_tokens / status.recent_seconds if status.recent_seconds else 0.0
    return Vitals(
        status=status,
        age_seconds=age,
        tokens_per_second=rate or None,
        is_of_last_minute=status.recent_seconds >= RATE_SECONDS,
        eta_seconds=_eta(status, rate, age),
        is_silent=status.exit_code is None and age > patience,
    )


def is_over(ranks: Sequence[Vitals]) -> bool:
    """Whether nothing more is to be expected: all have ended or fallen silent, and no restart has come."""
    return all(rank.is_silent or _has_ended(rank) for rank in ranks)


def vitals_line(rank: Vitals) -> str:
    """A rank on one line, for people."""
    status = rank.status
    parts = [f"rank {status.rank}: {status.state}", f"{status.num_blocks_done} of {status.num_blocks_planned} blocks"]
    parts.append(rate_text(rank))
    if rank.eta_seconds is not None:
        parts.append(f"about {duration_text(rank.eta_seconds)} left")
    if status.num_repeated or status.num_cached:
        parts.append(f"{status.num_repeated:,} repeated and {status.num_cached:,} cached records not computed again")
    parts.append(heartbeat_text(rank))
    if status.exit_code is not None:
        parts.append(f"exit code {status.exit_code}")
    return ", ".join(parts) + (f": {status.message}" if status.message else "")


def rate_text(rank: Vitals) -> str:
    """Tokens a second, and over which time."""
    if rank.tokens_per_second is None:
        return "no tokens computed yet" if rank.status.exit_code is None else "no tokens computed"
    over = "in the last minute" if rank.is_of_last_minute else "since it began"
    return f"{rank.tokens_per_second:,.0f} tokens/s {over}"


def heartbeat_text(rank: Vitals) -> str:
    """When it last wrote."""
    age = duration_text(rank.age_seconds)
    return f"SILENT for {age}" if rank.is_silent else f"last heartbeat {age} ago"


def duration_text(seconds: float) -> str:
    """Seconds, minutes or hours, to about a percent."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _eta(status: RankStatus, rate: float, age: float) -> float | None:
    """What is left by the pace of finished blocks, or by the tokens computed before any is; less what went by since."""
    if status.state != "scoring" or status.exit_code is not None:
        return None
    left = max(0, status.num_estimated_planned - status.num_estimated_done)
    pace = status.num_estimated_done / status.scoring_seconds if status.scoring_seconds else 0.0
    pace = pace or rate
    return max(0.0, left / pace - age) if pace else None


def _has_ended(rank: Vitals) -> bool:
    return rank.status.exit_code is not None and rank.age_seconds > RESTART_SECONDS
