"""What is hidden is in no file of a report, and every file says that something is."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aggregate.markdown import markdown_bytes
from aggregate.outputs import report_files
from aggregate.terminal import report_lines
from schemas.report import Figures, Report, Suppressed
from tests.made_runs import MadeRecord, make_build, make_run, report_of

SIZES = {"a": 3, "b": 12, "c": 20}
SENTENCE = "2 of 3 strata are suppressed: they have fewer than 11 records or patients"


def report_over(folder: Path, sizes: dict[str, int], **settings: int) -> Report:
    """A report by kind over records of one token each; stratum ``a`` has a loss that no other sum holds."""
    records = [
        MadeRecord(f"{kind}{index}", features=(kind,), loss=31.25 if kind == "a" else 1.0)
        for kind, size in sizes.items()
        for index in range(size)
    ]
    build = make_build(folder / "corpus", records, features=["kind"])
    return report_of(build, make_run(folder / "run", build), "kind", **settings)


def test_a_small_stratum_and_the_next_are_hidden_everywhere(tmp_path: Path) -> None:
    """Of strata of 3, 12 and 20 records the last is shown; no file and no terminal shows more."""
    report = report_over(tmp_path, SIZES, min_cell=11)

    files = report_files(report)

    strata = report.crossings[0].strata
    assert [stratum.figures.status for stratum in strata] == ["suppressed", "suppressed", "ok"]
    assert json.loads(files["report.json"])["body"]["crossings"][0]["strata"][0]["figures"] == {"status": "suppressed"}
    assert isinstance(report.whole, Figures)
    assert report.whole.num_records == 35
    rows = pq.read_table(io.BytesIO(files["strata.parquet"])).to_pylist()
    assert [row["status"] for row in rows] == ["ok", "suppressed", "suppressed", "ok"]
    assert all(rows[1][name] is None for name in ("num_records", "num_skipped", "loss_mantissa", "token_perplexity"))
    for text in (files["report.html"].decode(), files["report.md"].decode(), "\n".join(report_lines(report, "page"))):
        assert SENTENCE in text
        assert "31.25" not in text


def test_averages_are_over_published_strata(tmp_path: Path) -> None:
    """The macro average is that of the shown stratum, and counts those that it leaves out."""
    macro = report_over(tmp_path, SIZES, min_cell=11).crossings[0].macro

    assert (macro.num_strata, macro.num_strata_suppressed) == (1, 2)
    assert macro.nll_per_token.model_dump() == {"status": "ok", "value": 1.0}


def test_zero_shows_everything_and_is_marked(tmp_path: Path) -> None:
    """With a threshold of 0 nothing is hidden, and the report says that small cells are shown."""
    report = report_over(tmp_path, SIZES, min_cell=0)

    assert all(isinstance(stratum.figures, Figures) for stratum in report.crossings[0].strata)
    assert "small cells shown" in report.marks
    assert b"small cells shown" in markdown_bytes(report)


@pytest.mark.parametrize("size", [1, 10])
def test_a_small_whole_hides_every_count(tmp_path: Path, size: int) -> None:
    """A run of 1 to 10 records has no figure, ledger or count of checks that would tell how many."""
    report = report_over(tmp_path, {"a": size}, min_cell=11)

    assert report.whole == report.ledger == Suppressed()
    assert all(check.count == Suppressed() for check in report.checks)
    assert set(map(type, report.precisions.values())) == {Suppressed}
    assert report.crossings[0].micro.token_perplexity.status == "suppressed"
    assert b"31.25" not in b"".join(report_files(report).values())
