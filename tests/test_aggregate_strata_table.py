"""``strata.parquet`` says the same as the report, for programs."""

from __future__ import annotations

import io
import math
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings

from aggregate.strata_table import METRICS, strata_bytes, strata_schema
from schemas.report import Number
from schemas.tally import ExactSum
from tests.made_runs import MadeRecord, made_records, make_build, make_run, report_of


@settings(max_examples=15)
@given(made_records(features=1))
def test_rows_equal_the_strata_of_the_report(records: list[MadeRecord]) -> None:
    """Every stratum is a row with its values, counts, exact loss, figures and statuses; the whole comes first."""
    with tempfile.TemporaryDirectory() as name:
        build = make_build(Path(name) / "corpus", records, features=["kind"])
        report = report_of(build, make_run(Path(name) / "run", build), "kind", "department,kind")

    table = pq.read_table(io.BytesIO(strata_bytes(report)))

    assert table.schema.equals(strata_schema())
    rows = table.to_pylist()
    strata = [([], report.whole)]
    strata += [(stratum.values, stratum.figures) for crossing in report.crossings for stratum in crossing.strata]
    assert len(rows) == len(strata)
    for row, (values, figures) in zip(rows, strata, strict=True):
        assert row["values"] == [item.value for item in values]
        assert row["columns"] == [item.column for item in values]
        exact = ExactSum.from_json({"mantissa": row["loss_mantissa"], "exponent": row["loss_exponent"]})
        assert exact.to_json() == figures.loss_nats_exact.model_dump()
        for metric in METRICS:
            figure = getattr(figures, metric)
            assert row[metric] == (figure.value if isinstance(figure, Number) else None)
            assert row[f"{metric}_status"] == figure.status
            assert row[metric] is None or math.isfinite(row[metric])
