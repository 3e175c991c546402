"""What ``report`` and ``verify`` say on a terminal: plain, aligned lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from aggregate import wording
from aggregate.markdown import STRATUM_COLUMNS, stratum_cells
from schemas.report import Crossing, Report

MAX_STRATA = 40
WIDE = {"W", "F"}


def report_lines(report: Report, page: str) -> list[str]:
    """The figures of the whole, each crossing, and where the page lies."""
    head = f"{report.title}: {report.model}, {wording.precision_text(report)}"
    lines = [head, *(f"! {mark}" for mark in report.marks), ""]
    if hidden := wording.suppression_text(report):
        lines += [hidden, ""]
    rows = [
        (line.name, wording.metric(line.metric), getattr(line.metric, "reason", line.unit))
        for line in wording.headlines(report)
    ]
    rows += [(name, wording.count(number), "") for name, number in wording.totals(report)]
    lines += aligned(rows, numbers=(1,))
    for crossing in report.crossings:
        lines += ["", *crossing_lines(crossing)]
    if report.drift:
        lines += ["", *aligned([wording.DRIFT_COLUMNS, *wording.drift_rows(report)], numbers=range(1, 6))]
    for split in report.splits:
        table = [[split.by, *wording.PART_COLUMNS], *([part.name, *wording.part_cells(part)] for part in split.parts)]
        lines += ["", *aligned(table, numbers=range(1, len(table[0])))]
    return [*lines, "", f"page: {page}"]


def crossing_lines(crossing: Crossing) -> list[str]:
    """The strata of one crossing with both averages; a long one is cut, and says so."""
    width = len(crossing.columns)
    rows: list[list[str]] = [[*crossing.columns, *STRATUM_COLUMNS]]
    rows += [
        [*(item.label for item in stratum.values), *stratum_cells(stratum)] for stratum in crossing.strata[:MAX_STRATA]
    ]
    for name, average in (("micro", crossing.micro), ("macro", crossing.macro)):
        shown = (wording.metric(average.token_perplexity), wording.metric(average.nll_per_token))
        rows.append([f"{name} average", *("",) * (width - 1), *shown, *("",) * (len(STRATUM_COLUMNS) - 2)])
    lines = aligned(rows, numbers=range(width, len(rows[0])))
    num_left_out = len(crossing.strata) - MAX_STRATA
    return [*lines, f"{num_left_out:,} more strata are in the files"] if num_left_out > 0 else lines


def check_lines(checks: dict[str, int], marks: Sequence[str]) -> list[str]:
    """What was verified, and how many of it."""
    rows = [(f"ok  {name}", wording.count(number)) for name, number in checks.items()]
    return [*(f"! {mark}" for mark in marks), *aligned(rows, numbers=(1,))]


def aligned(rows: Iterable[Sequence[str]], *, numbers: Iterable[int]) -> list[str]:
    """Rows as lines of equally wide columns; ``numbers`` are the columns that stand on the right."""
    table, right = [list(row) for row in rows], set(numbers)
    widths = [max(map(columns_of, column), default=0) for column in zip(*table, strict=True)]
    return ["  ".join(_padded(cell, widths[i], i in right) for i, cell in enumerate(row)).rstrip() for row in table]


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: East Asian wide letters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in WIDE) for letter in text
    )


def _padded(cell: str, width: int, right: bool) -> str:
    blank = " " * (width - columns_of(cell))
    return blank + cell if right else cell + blank
