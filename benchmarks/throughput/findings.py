"""What follows from the outcomes: medians, ratios to peers and goals, and whether the race was over equal work."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.throughput.values import Outcome, Precision
from schemas.errors import IntegrityError

GOALS: dict[str, dict[Precision, float]] = {
    "harness": {"fp32": 2.0, "mixed": 2.5, "bf16": 3.0},
    "plain": {"fp32": 1.5, "mixed": 2.5, "bf16": 2.5},
}
LEAST_UTILISATION: dict[Precision, float] = {"fp32": 0.7}
LEAST_DEDUP, LEAST_RANKS = 2.0, 1.0
MOST_FIRST_TILE_SECONDS, MOST_OTHER_SHARE = 15.0, 0.05
# Peers round a note's sum to the dtype of their logits: three digits in the reduced modes.
MOST_RECORD_DIFFERENCE: dict[Precision, float] = {"fp32": 1e-4, "mixed": 0.1, "bf16": 0.1}
MOST_TOTAL_DIFFERENCE: dict[Precision, float] = {"fp32": 1e-5, "mixed": 0.01, "bf16": 0.01}


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a peer's losses are from ours, relative to ours.

    Attributes:
        record: The largest of a single note.
        total: Of the sum over all notes.
    """

    record: float
    total: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of the results.

    Attributes:
        precision: Of the backbone.
        name: What was measured.
        value: Of the figure.
        unit: ``tokens/s``, ``x`` (a ratio), ``share``, ``s``, or ``FLOP/s``.
        goal: What was aimed at, if anything.
        at_most: Whether the goal is an upper bound.
    """

    precision: Precision
    name: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def compared(ours: Outcome, peer: Outcome) -> Difference:
    """The relative differences of a peer's losses.

    Raises:
        IntegrityError: it scored other tokens, so it ran another race.
    """
    if ours.tokens != peer.tokens:
        num_other = sum(one != other for one, other in zip(ours.tokens, peer.tokens, strict=False))
        raise IntegrityError(
            f"race: a peer scored {sum(peer.tokens)} tokens, ours {sum(ours.tokens)}, {num_other} notes differ; the "
            "tokenizers must agree, leave the peer out"
        )
    pairs = list(zip(ours.losses_nats, peer.losses_nats, strict=True))
    total = sum(ours.losses_nats)
    return Difference(
        record=max(abs(other - one) / abs(one) for one, other in pairs),
        total=abs(sum(peer.losses_nats) - total) / abs(total),
    )


def require_equal_work(difference: Difference, precision: Precision, name: str) -> None:
    """A peer's losses are ours within its own rounding.

    Raises:
        IntegrityError: they are not, so one of the two computes something else.
    """
    most_record, most_total = MOST_RECORD_DIFFERENCE[precision], MOST_TOTAL_DIFFERENCE[precision]
    if not (difference.record <= most_record and difference.total <= most_total):
        raise IntegrityError(
            f"{name} in {precision}: a note's loss differs from ours by {difference.record:.1e}, the total by "
            f"{difference.total:.1e}, allowed are {most_record:.0e} and {most_total:.0e}; one computes something else"
        )


def require_one_version(outcomes: Sequence[Outcome]) -> None:
    """All contenders computed with the same torch and transformers.

    Raises:
        IntegrityError: they did not.
    """
    found = {
        name: sorted({one.versions[name].partition("+")[0] for one in outcomes if one.versions})
        for name in ("torch", "transformers")
    }
    several = [f"{name} {' and '.join(versions)}" for name, versions in found.items() if len(versions) > 1]
    if several:
        raise IntegrityError(f"race: {', '.join(several)} in one race; remove harness in --work, and start again")


def median_rate(outcomes: Sequence[Outcome]) -> float:
    """Tokens a second of the median turn."""
    return statistics.median(outcome.rate for outcome in outcomes)


def best_batch(outcomes: Mapping[int, Outcome]) -> int:
    """The batch size with the most tokens a second, of those that fit into memory.

    Raises:
        IntegrityError: none did.
    """
    fitting = {size: outcome.rate for size, outcome in outcomes.items() if not outcome.is_out_of_memory}
    if not fitting:
        raise IntegrityError("harness: no batch size fits into memory; name fewer notes, or a shorter --max-length")
    return max(fitting, key=lambda size: fitting[size])


def race_findings(precision: Precision, turns: Mapping[str, Sequence[Outcome]]) -> list[Finding]:
    """The figures of one precision, from the turns of each contender (``ours``, ``harness``, ``plain``, ``limit``)."""
    ours = turns["ours"]
    rate = median_rate(ours)
    found = [Finding(precision, "ours", rate, "tokens/s")]
    for peer in [name for name in GOALS if turns.get(name)]:
        theirs = median_rate(turns[peer])
        found.append(Finding(precision, peer, theirs, "tokens/s"))
        found.append(Finding(precision, f"ours to {peer}", rate / theirs, "x", GOALS[peer][precision]))
    if turns.get("limit"):
        limit = turns["limit"]
        peak = max(one.figures["peak_flops"] for one in limit)  # what disturbs a turn would lower the limit
        used = rate * _median(limit, "flops_per_token") / peak
        found.append(Finding(precision, "matmul peak", peak, "FLOP/s"))
        found.append(Finding(precision, "model-FLOPs utilisation", used, "share", LEAST_UTILISATION.get(precision)))
    first, other = _median(ours, "first_tile_seconds"), _median(ours, "other_share")
    found.append(Finding(precision, "start to first tile", first, "s", MOST_FIRST_TILE_SECONDS, at_most=True))
    found.append(Finding(precision, "all but the model", other, "share", MOST_OTHER_SHARE, at_most=True))
    found.append(Finding(precision, "tile fill", _median(ours, "tile_fill"), "share"))
    return found


def pair_findings(precision: Precision, name: str, one: Sequence[Outcome], other: Sequence[Outcome]) -> list[Finding]:
    """Rates of two ways to run ours, and the ratio of the first to the second."""
    goal = {"dedup": LEAST_DEDUP, "ranks": LEAST_RANKS}[name]
    names = {"dedup": ("dedup on", "dedup off"), "ranks": ("two ranks of one thread", "one rank of two threads")}[name]
    rates = [median_rate(one), median_rate(other)]
    found = [Finding(precision, title, rate, "tokens/s") for title, rate in zip(names, rates, strict=True)]
    return [*found, Finding(precision, f"{names[0]} to {names[1]}", rates[0] / rates[1], "x", goal)]


def _median(outcomes: Sequence[Outcome], figure: str) -> float:
    return statistics.median(outcome.figures[figure] for outcome in outcomes)
