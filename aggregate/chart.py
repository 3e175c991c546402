"""Bars of nll_per_token by stratum, as numbers that an inline SVG needs: it scales by per cent, its text does not."""

from __future__ import annotations

from typing import NamedTuple

from aggregate.wording import metric
from schemas.report import Crossing, Figures, Number

MAX_BARS = 60
MAX_LETTERS = 40
ROW_PIXELS = 34
FOOT_PIXELS = 22


class Bar(NamedTuple):
    """One stratum: ``width`` and ``x`` in per cent, ``top`` in pixels."""

    top: int
    label: str
    text: str
    width: float


class Chart(NamedTuple):
    """All bars of a crossing, the longest filling the width, and the micro average as a line."""

    bars: list[Bar]
    height: int
    average: float
    average_text: str
    num_left_out: int


def chart_of(crossing: Crossing) -> Chart | None:
    """The chart of a crossing; none where no stratum has a finite, positive nll_per_token."""
    drawn = [
        (stratum, stratum.figures.nll_per_token)
        for stratum in crossing.strata
        if isinstance(stratum.figures, Figures) and isinstance(stratum.figures.nll_per_token, Number)
    ]
    values = [figure.value for _, figure in drawn[:MAX_BARS]]
    longest = max(values, default=0.0)
    if longest <= 0.0 or not isinstance(crossing.micro.nll_per_token, Number):
        return None
    bars = [
        Bar(
            top=index * ROW_PIXELS,
            label=_shortened(" · ".join(item.label for item in stratum.values)),
            text=metric(figure),
            width=_percent(value, longest),
        )
        for index, ((stratum, figure), value) in enumerate(zip(drawn, values, strict=False))
    ]
    return Chart(
        bars=bars,
        height=len(bars) * ROW_PIXELS + FOOT_PIXELS,
        average=_percent(crossing.micro.nll_per_token.value, longest),
        average_text=metric(crossing.micro.nll_per_token),
        num_left_out=len(crossing.strata) - len(bars),
    )


def _percent(value: float, longest: float) -> float:
    return round(100.0 * min(max(value / longest, 0.0), 1.0), 2)


def _shortened(label: str) -> str:
    return label if len(label) <= MAX_LETTERS else f"{label[: MAX_LETTERS - 1]}…"
