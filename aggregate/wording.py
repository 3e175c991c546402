"""How numbers and accounts are worded for people, the same on every page and in every locale."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from schemas.drift import percent
from schemas.report import LossSplit, Metric, NoNumber, Part, Report, Suppressed

HIDDEN = "suppressed"
PLAIN_BELOW = 1_000_000
DRIFT_COLUMNS = ("band", "records", "tokens", "drift", "95 % interval", "limit", "verdict")
PART_COLUMNS = ("tokens", "share of tokens", "share of loss", "nats per token")
PARTS_NOTE = (
    "A token is of one class and at one position, so the parts add up to the whole, bit for bit. Parts of few records "
    "or patients are suppressed, with others that would give them away."
)
COMMAND = "python -m aggregate verify BUILD RUN"


class Headline(NamedTuple):
    """One figure of the whole, with its unit."""

    name: str
    metric: Metric
    unit: str


class LedgerLine(NamedTuple):
    """One line of the account of all records; ``sign`` is "−" where records leave, "=" where the account is drawn."""

    stage: str
    sign: str
    what: str
    num_records: int


def count(number: int | Suppressed) -> str:
    """An integer with thousands separated, or that it is hidden."""
    return HIDDEN if isinstance(number, Suppressed) else f"{number:,}"


def metric(value: Metric, digits: int = 4) -> str:
    """A figure with some decimals, or the word that stands for it."""
    if isinstance(value, NoNumber):
        return value.status
    return f"{value.value:,.{digits}f}" if abs(value.value) < PLAIN_BELOW else f"{value.value:.{digits}e}"


def headlines(report: Report) -> list[Headline]:
    """The figures of the whole, the most asked for first."""
    whole = report.whole
    if isinstance(whole, Suppressed):
        return []
    return [
        Headline("token_perplexity", whole.token_perplexity, "exp of nats per token"),
        Headline("word_perplexity", whole.word_perplexity, "exp of nats per word"),
        Headline("byte_perplexity", whole.byte_perplexity, "exp of nats per byte"),
        Headline("bits_per_byte", whole.bits_per_byte, "bits"),
        Headline("nll_per_token", whole.nll_per_token, "nats"),
    ]


def split_title(split: LossSplit) -> str:
    """By what the loss is split."""
    return {"class": "Where the loss sits: by class of token", "position": "Where the loss sits: by position"}[split.by]


def part_cells(part: Part) -> list[str]:
    """The figures of a part in the order of ``PART_COLUMNS``."""
    figures = part.figures
    if isinstance(figures, Suppressed):
        return [HIDDEN, *("",) * (len(PART_COLUMNS) - 1)]
    metrics = (figures.share_of_tokens, figures.share_of_loss, figures.nll_per_token)
    return [count(figures.num_tokens), *map(metric, metrics)]


def suppression_text(report: Report) -> str:
    """What is hidden, why, and how many strata it is; empty where nothing is."""
    strata = [stratum for crossing in report.crossings for stratum in crossing.strata]
    num_hidden = sum(isinstance(stratum.figures, Suppressed) for stratum in strata)
    whole = "All figures of the whole and the ledger are suppressed. " if isinstance(report.whole, Suppressed) else ""
    if not num_hidden and not whole:
        return ""
    return (
        f"{whole}{num_hidden:,} of {len(strata):,} strata are suppressed: they have fewer than {report.min_cell} "
        "records or patients, or would give away one that has. Macro averages are over the other strata."
    )


def precision_text(report: Report) -> str:
    """The precisions that the scored records were computed in, with their numbers where there are several."""
    if len(report.precisions) == 1:
        return next(iter(report.precisions))
    parts = [
        name if isinstance(number, Suppressed) else f"{name} ({count(number)} records)"
        for name, number in sorted(report.precisions.items())
    ]
    return ", ".join(parts) or "none, no record was scored"


def drift_rows(report: Report) -> list[tuple[str, str, str, str, str, str, str]]:
    """Each checked band: records, tokens, drift, its interval, the limit and what the drift is against it."""
    return [
        (
            item.band,
            count(item.num_records),
            count(item.num_tokens),
            percentage(item.drift),
            f"{percentage(item.low)} to {percentage(item.high)}",
            f"{100 * item.limit:g} %",
            item.verdict,
        )
        for item in report.drift
    ]


def percentage(value: Metric) -> str:
    """A signed share, or the word that stands for it."""
    return value.status if isinstance(value, NoNumber) else percent(value.value)


def totals(report: Report) -> list[tuple[str, int]]:
    """The counts of the whole."""
    whole = report.whole
    if isinstance(whole, Suppressed):
        return []
    return [
        ("records", whole.num_records),
        ("patients", whole.num_patients),
        ("records without a known patient", whole.num_records_without_patient),
        ("tokens", whole.num_tokens),
        ("words", whole.num_words),
        ("bytes", whole.num_bytes),
    ]


def ledger_lines(report: Report) -> list[LedgerLine]:
    """Every record from the input to the report; reasons that took no record are left out."""
    if isinstance(report.ledger, Suppressed):
        return []
    build, run = report.ledger.build, report.ledger.run
    lines = [LedgerLine("sharding", "", "read", build.num_read)]
    lines += _reasons("sharding", "rejected", build.rejected)
    lines += _reasons("sharding", "duplicate", build.duplicates)
    lines.append(LedgerLine("sharding", "=", "kept", build.num_kept))
    lines += _reasons("scoring", "skipped", run.skipped)
    if run.num_beyond_limit:
        lines.append(LedgerLine("scoring", "−", "beyond the limit of this run", run.num_beyond_limit))
    lines.append(LedgerLine("scoring", "=", "scored", run.num_scored))
    lines.append(LedgerLine("aggregate", "=", "reported", report.ledger.num_reported))
    return lines


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as lines of dotted name and text, in a fixed order."""
    for key in sorted(values):
        value = values[key]
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def provenance_lines(report: Report) -> list[tuple[str, str]]:
    """Where the figures came from, as lines of name and text."""
    body = report.provenance.model_dump(mode="json", exclude={"seals"})
    seals = {f"sha256 of {name}": seal.sha256 for name, seal in report.provenance.seals.items()}
    return [*flat(body), *flat(seals)]


def columns_text(columns: list[str]) -> str:
    """A crossing in words."""
    return " × ".join(name.replace("_", " ") for name in columns)


def _reasons(stage: str, what: str, counts: Mapping[str, int]) -> list[LedgerLine]:
    return [
        LedgerLine(stage, "−", f"{what}: {reason.replace('_', ' ')}", counts[reason])
        for reason in sorted(counts)
        if counts[reason]
    ]
