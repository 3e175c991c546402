"""The report for terminals and pull requests: the same content as the page, as GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from aggregate import wording
from aggregate.crossings import DEPARTMENT
from aggregate.wording import count, metric
from schemas.report import Crossing, LossSplit, Report, Stratum, StratumValue, Suppressed

SPECIAL = re.compile(r"([\\`*_\[\]<>|~&])")
STRATUM_COLUMNS = (
    "token perplexity",
    "nats per token",
    "word perplexity",
    "byte perplexity",
    "bits per byte",
    "tokens",
    "records",
    "patients",
    "skipped",
)


def markdown_bytes(report: Report) -> bytes:
    """The document; equal reports give equal bytes."""
    parts = [_head(report), _coverage(report)]
    parts += [_crossing(crossing) for crossing in report.crossings]
    parts += [_drift(report)] if report.drift else []
    parts += [_split(split) for split in report.splits]
    parts += [_checks(report), _ledger(report)]
    parts.append(_pairs("Model and settings", wording.flat(report.fingerprint)))
    parts.append(_pairs("Self-test", wording.flat(report.selftest)))
    parts.append(_method(report))
    parts.append(_pairs("Content", wording.flat(report.content.model_dump(mode="json"))))
    parts.append(_pairs("Provenance", wording.provenance_lines(report)))
    return ("\n\n".join(parts) + "\n").encode("utf-8")


def stratum_cells(stratum: Stratum) -> list[str]:
    """The figures of a stratum in the order of ``STRATUM_COLUMNS``."""
    figures = stratum.figures
    if isinstance(figures, Suppressed):
        return [wording.HIDDEN, *("",) * (len(STRATUM_COLUMNS) - 1)]
    metrics = (
        figures.token_perplexity,
        figures.nll_per_token,
        figures.word_perplexity,
        figures.byte_perplexity,
        figures.bits_per_byte,
    )
    counts = (figures.num_tokens, figures.num_records, figures.num_patients, figures.num_skipped)
    return [*map(metric, metrics), *map(count, counts)]


def _head(report: Report) -> str:
    ids = f"run `{report.provenance.run_id}`, build `{report.provenance.build_id}`"
    precision = _plain(wording.precision_text(report))
    lines = [f"# {_plain(report.title)}", "", f"Model **{_plain(report.model)}**, precision {precision}, {ids}", ""]
    if report.marks:
        lines += [f"> {', '.join(f'**{_plain(mark)}**' for mark in report.marks)}", ""]
    if hidden := wording.suppression_text(report):
        lines += [_plain(hidden), ""]
    rows = [
        (line.name.replace("_", " "), metric(line.metric), _plain(getattr(line.metric, "reason", line.unit)))
        for line in wording.headlines(report)
    ]
    rows += [(name, count(number), "") for name, number in wording.totals(report)]
    return "\n".join([*lines, _table(("figure", "value", "unit"), rows, numbers=(1,))])


def _coverage(report: Report) -> str:
    ledger = report.ledger
    if isinstance(ledger, Suppressed):
        return _section("Coverage", wording.HIDDEN)
    steps = (
        (ledger.build.num_read, "read"),
        (ledger.build.num_kept, "kept"),
        (ledger.num_reported, "scored and reported"),
    )
    return _section("Coverage", " → ".join(f"{count(number)} {step}" for number, step in steps))


def _crossing(crossing: Crossing) -> str:
    width = len(crossing.columns)
    rows = [(*map(_label, stratum.values), *stratum_cells(stratum)) for stratum in crossing.strata]
    for name, average in (("micro", crossing.micro), ("macro", crossing.macro)):
        shown = (metric(average.token_perplexity), metric(average.nll_per_token))
        rows.append((f"*{name} average*", *("",) * (width - 1), *shown, *("",) * (len(STRATUM_COLUMNS) - 2)))
    heads = (*(_plain(name.replace("_", " ")) for name in crossing.columns), *STRATUM_COLUMNS)
    table = _table(heads, rows, numbers=range(width, len(heads)))
    note = (
        f"The micro average is from the sums; the macro average is unweighted over {crossing.macro.num_strata} strata."
        f" {crossing.macro.num_strata_suppressed} are suppressed."
    )
    return _section(f"By {_plain(wording.columns_text(crossing.columns))}", f"{table}\n\n{note}")


def _drift(report: Report) -> str:
    rows = [tuple(map(_plain, row)) for row in wording.drift_rows(report)]
    return _section("Precision", _table(wording.DRIFT_COLUMNS, rows, numbers=range(1, 6)))


def _split(split: LossSplit) -> str:
    rows = [(_plain(part.name), *wording.part_cells(part)) for part in split.parts]
    heads = (split.by, *wording.PART_COLUMNS)
    table = _table(heads, rows, numbers=range(1, len(heads)))
    return _section(wording.split_title(split), f"{table}\n\n{wording.PARTS_NOTE}")


def _checks(report: Report) -> str:
    rows = [(_plain(line.check), count(line.count), "passed") for line in report.checks]
    table = _table(("check", "verified", "outcome"), rows, numbers=(1,))
    return _section("Checks", f"{table}\n\nTo repeat them: `{wording.COMMAND}`")


def _ledger(report: Report) -> str:
    rows = [
        (line.stage, _plain(f"{line.sign} {line.what}".strip()), count(line.num_records))
        for line in wording.ledger_lines(report)
    ]
    if not rows:
        return _section("Ledger", wording.HIDDEN)
    return _section("Ledger", _table(("stage", "account", "records"), rows, numbers=(2,)))


def _method(report: Report) -> str:
    lines = []
    for line in report.method:
        formula = f"`{line.formula}`. " if line.formula else ""
        lines.append(f"- **{_plain(line.term)}**: {formula}{_plain(line.meaning)}")
    return _section("Method", "\n".join(lines))


def _pairs(title: str, lines: Iterable[tuple[str, str]]) -> str:
    rows = [(_plain(name), _plain(text)) for name, text in lines]
    return _section(title, _table(("name", "value"), rows, numbers=()))


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int]) -> str:
    rules = ["---:" if index in numbers else "---" for index in range(len(heads))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _label(item: StratumValue) -> str:
    coded = item.column == DEPARTMENT and item.value is not None and item.label != item.value
    return f"{_plain(item.label)} `{item.value}`" if coded else _plain(item.label)


def _plain(text: str) -> str:
    """Text that means itself: Markdown's signs are escaped and it stays on one line."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))
