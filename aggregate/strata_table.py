"""``strata.parquet``: one row per stratum of every crossing, for those who go on computing."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.report import Crossing, Figures, Metric, Number, Report, Suppressed

COUNTS = (
    "num_records",
    "num_skipped",
    "num_patients",
    "num_records_without_patient",
    "num_tokens",
    "num_words",
    "num_bytes",
)
METRICS = ("loss_nats", "nll_per_token", "token_perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte")


def strata_schema() -> pa.Schema:
    """Columns of ``strata.parquet``; a figure without a value is null, its ``_status`` column says why."""
    texts = pa.list_(pa.field("item", pa.large_string(), nullable=True))
    fields = [
        pa.field(
            "crossing", pa.string(), nullable=False, metadata={"meaning": "columns joined by commas; empty: whole"}
        ),
        pa.field("columns", texts, nullable=False, metadata={"meaning": "columns of the crossing"}),
        pa.field("values", texts, nullable=False, metadata={"meaning": "one per column; null is a value of its own"}),
        pa.field("labels", texts, nullable=False, metadata={"meaning": "the values as people see them"}),
        pa.field(
            "status", pa.string(), nullable=False, metadata={"meaning": "ok, or suppressed: then all figures are null"}
        ),
        *(pa.field(name, pa.int64()) for name in COUNTS),
        pa.field("loss_mantissa", pa.large_string(), metadata={"meaning": "loss = mantissa * 2**exponent"}),
        pa.field("loss_exponent", pa.int64()),
    ]
    for name in METRICS:
        fields += [pa.field(name, pa.float64()), pa.field(f"{name}_status", pa.string(), nullable=False)]
    return pa.schema(fields)


def strata_bytes(report: Report) -> bytes:
    """The Parquet file of a report; the whole comes first, as the stratum of no column. Equal reports, equal bytes."""
    sink = io.BytesIO()
    table = pa.Table.from_pylist(list(_rows(report)), schema=strata_schema())
    pq.write_table(table, sink, compression="zstd", compression_level=3, version="2.6", row_group_size=1 << 20)
    return sink.getvalue()


def _rows(report: Report) -> Iterator[dict[str, Any]]:
    yield {"crossing": "", "columns": [], "values": [], "labels": [], **_figures(report.whole)}
    for crossing in report.crossings:
        yield from _crossing_rows(crossing)


def _crossing_rows(crossing: Crossing) -> Iterator[dict[str, Any]]:
    for stratum in crossing.strata:
        yield {
            "crossing": ",".join(crossing.columns),
            "columns": crossing.columns,
            "values": [item.value for item in stratum.values],
            "labels": [item.label for item in stratum.values],
            **_figures(stratum.figures),
        }


def _figures(figures: Figures | Suppressed) -> dict[str, Any]:
    if isinstance(figures, Suppressed):
        return {"status": figures.status, **{f"{name}_status": figures.status for name in METRICS}}
    row: dict[str, Any] = {"status": figures.status, **{name: getattr(figures, name) for name in COUNTS}}
    exact = figures.loss_nats_exact
    row |= {"loss_mantissa": exact.mantissa, "loss_exponent": exact.exponent}
    for name in METRICS:
        metric: Metric = getattr(figures, name)
        row[name] = metric.value if isinstance(metric, Number) else None
        row[f"{name}_status"] = metric.status
    return row
