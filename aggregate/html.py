"""The report as one self-contained page: no script, no request, readable on a phone, in the dark and on paper."""

from __future__ import annotations

from aggregate import wording
from aggregate.chart import chart_of
from schemas.report import Report

TEMPLATE = "report.html.j2"


def html_bytes(report: Report) -> bytes:
    """The page; equal reports give equal bytes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("aggregate", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters |= {"count": wording.count, "metric": wording.metric, "words": wording.columns_text}
    page = environment.get_template(TEMPLATE).render(
        report=report,
        precision=wording.precision_text(report),
        headlines=wording.headlines(report),
        suppression=wording.suppression_text(report),
        totals=wording.totals(report),
        drift_columns=wording.DRIFT_COLUMNS,
        drift_rows=wording.drift_rows(report),
        ledger=wording.ledger_lines(report),
        crossings=[(crossing, chart_of(crossing)) for crossing in report.crossings],
        splits=[
            (wording.split_title(split), split.by, [(part.name, wording.part_cells(part)) for part in split.parts])
            for split in report.splits
        ],
        part_columns=wording.PART_COLUMNS,
        parts_note=wording.PARTS_NOTE,
        fingerprint=list(wording.flat(report.fingerprint)),
        selftest=list(wording.flat(report.selftest)),
        provenance=wording.provenance_lines(report),
        command=wording.COMMAND,
    )
    return page.encode("utf-8")
