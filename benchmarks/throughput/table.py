"""The findings as a Markdown table for RESULTS.md, and as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.throughput.findings import Difference, Finding

VERDICTS = {None: "", True: "met", False: "**not met**"}


def table_lines(findings: Sequence[Finding], differences: Mapping[str, Difference]) -> list[str]:
    """One row a figure, then one a peer with its differences."""
    lines = ["| precision | figure | value | goal | |", "|---|---|---|---|---|"]
    for one in findings:
        goal = "" if one.goal is None else f"{'at most' if one.at_most else 'at least'} {shown(one.goal, one.unit)}"
        lines.append(
            f"| {one.precision} | {one.name} | {shown(one.value, one.unit)} | {goal} | {VERDICTS[one.is_met]} |"
        )
    lines += ["", "| losses against ours | largest of a note | of the total |", "|---|---|---|"]
    lines += [f"| {name} | {one.record:.1e} | {one.total:.1e} |" for name, one in sorted(differences.items())]
    return lines


def shown(value: float, unit: str) -> str:
    """A figure with its unit, in as many digits as it is worth."""
    if unit == "FLOP/s":
        return f"{value / 1e9:,.0f} GFLOP/s"
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "x":
        return f"{value:.2f}x"
    return f"{value:,.0f} tokens/s" if unit == "tokens/s" else f"{value:.1f} {unit}"


def as_json(
    findings: Sequence[Finding], differences: Mapping[str, Difference], setup: Mapping[str, Any]
) -> dict[str, Any]:
    """Set-up, findings with their verdicts, and differences."""
    return {
        "setup": dict(setup),
        "findings": [asdict(one) | {"is_met": one.is_met} for one in findings],
        "differences": {name: asdict(one) for name, one in differences.items()},
    }
