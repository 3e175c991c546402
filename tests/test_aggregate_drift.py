"""The drift of reduced precisions in a report: from the partials, beside its limit, hidden where few are behind it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aggregate.collect import collect
from aggregate.drift import policy_of_run
from aggregate.html import html_bytes
from aggregate.markdown import markdown_bytes
from aggregate.runs import open_run
from aggregate.terminal import report_lines
from schemas.documents import read_document, write_document
from schemas.drift import BandDrift, sums_of
from schemas.errors import IntegrityError
from schemas.folders import open_build
from schemas.manifests import RunManifest
from schemas.report import NoNumber, Number, Suppressed
from tests.launches import complete, notes, score_here
from tests.made_runs import MadeBuild, MadeRecord, blocks_of, make_build, make_run, report_of, scored_table

COMPUTE = {"precision": "fp32:10,mixed:100,bf16", "precision_check": 1.0}
RECORDS = [
    *(MadeRecord(f"short {number}", num_tokens=9) for number in range(3)),
    *(
        MadeRecord(f"middle {number}", patient=f"p{number}", num_tokens=50, loss=100.05, check=100.0, precision="mixed")
        for number in range(12)
    ),
    *(MadeRecord(f"long {number}", num_tokens=200, loss=400.0, check=399.9, precision="bf16") for number in range(3)),
]


@pytest.fixture
def build(tmp_path: Path) -> MadeBuild:
    """A build of short, middle and long notes."""
    return make_build(tmp_path / "corpus", RECORDS)


@pytest.fixture
def run(tmp_path: Path, build: MadeBuild) -> Path:
    """A run over it in three bands, all of whose records in reduced ones were checked."""
    return make_run(tmp_path / "run", build, compute=COMPUTE)


def claim(run: Path, change: Callable[[list[BandDrift]], list[BandDrift]]) -> None:
    """Let COMPLETE claim another drift."""
    manifest = read_document(run / "COMPLETE", RunManifest)
    changed = manifest.model_copy(update={"drift": change(manifest.drift)})
    write_document(run / "COMPLETE", changed, replace=True)


def test_the_report_has_the_drift_of_each_band(build: MadeBuild, run: Path) -> None:
    """Records, tokens, drift, interval, limit and verdict stand in the report and are checked."""
    report = report_of(build, run)

    mixed, bf16 = report.drift
    assert (mixed.band, mixed.num_records, mixed.num_tokens) == ("mixed:100", 12, 600)
    assert isinstance(mixed.drift, Number)
    assert mixed.drift.value == pytest.approx(math.expm1(0.001), rel=1e-9)
    assert isinstance(mixed.low, Number)
    assert mixed.low.value == pytest.approx(mixed.drift.value, rel=1e-6)  # all records drift alike
    assert (mixed.limit, mixed.verdict, bf16.band, bf16.num_records) == (0.003, "within", "bf16", 3)
    checks = {line.check: line.count for line in report.checks}
    assert checks["run: drift of reduced precisions equal to that of the partials, by band"] == 2


def test_every_rendering_shows_it(build: MadeBuild, run: Path) -> None:
    """Page, Markdown and terminal have a row for each band."""
    report = report_of(build, run)

    page, text = html_bytes(report).decode(), markdown_bytes(report).decode()
    shown = "\n".join(report_lines(report, "page"))

    row = "mixed:100 12 600 +0.1001 % +0.1001 % to +0.1001 % 0.3 % within"
    for rendered in (re.sub(r"<[^>]*>", " ", page), text.replace("|", " "), shown):
        assert row in " ".join(rendered.split())


def test_a_run_without_a_check_shows_none(build: MadeBuild, tmp_path: Path) -> None:
    """Where nothing was checked there is no section and no empty table."""
    plain = make_build(tmp_path / "plain", [MadeRecord(f"n{number}") for number in range(4)])

    report = report_of(plain, make_run(tmp_path / "plain-run", plain))

    assert report.drift == []
    assert b"<h2>Precision</h2>" not in html_bytes(report)
    assert b"## Precision" not in markdown_bytes(report)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: [],
        lambda drifts: drifts[:1],
        lambda drifts: [drifts[0].model_copy(update={"verdict": "above"}), drifts[1]],
        lambda drifts: [drifts[0].model_copy(update={"sums": drifts[0].sums | {"num_sampled": 13}}), drifts[1]],
        lambda drifts: [drifts[0].model_copy(update={"limit": 0.5}), drifts[1]],
        lambda drifts: [item.model_copy(update={"limit": 0.0001}) for item in drifts],
    ],
)
def test_a_claim_that_the_partials_do_not_bear_out_is_refused(
    change: Callable[[list[BandDrift]], list[BandDrift]], build: MadeBuild, run: Path
) -> None:
    """A band left out, other sums, another verdict, or a limit that it does not follow from: no report."""
    claim(run, change)

    with pytest.raises(IntegrityError, match="the drift of reduced precisions differs from that of the partials"):
        report_of(build, run)


def test_a_drift_of_few_records_is_hidden(build: MadeBuild, run: Path) -> None:
    """Below the threshold for cells neither counts nor drift are shown; the verdict is, and larger samples are."""
    mixed, bf16 = report_of(build, run, min_cell=11).drift

    assert mixed.num_records == 12
    assert (type(bf16.num_records), type(bf16.num_tokens)) == (Suppressed, Suppressed)
    assert {item.status for item in (bf16.drift, bf16.low, bf16.high)} == {"suppressed"}
    assert bf16.verdict == "within"


def test_a_drift_of_few_patients_is_hidden(tmp_path: Path) -> None:
    """Twelve records of one patient are that patient's: nothing is shown of them."""
    made = make_build(tmp_path / "corpus", [replace(record, patient="p") for record in RECORDS])

    found = report_of(made, make_run(tmp_path / "run", made, compute=COMPUTE), min_cell=11).drift

    assert {type(item.num_records) for item in found} == {Suppressed}
    assert {item.drift.status for item in found} == {"suppressed"}


def test_what_a_sample_does_not_tell_is_said(tmp_path: Path) -> None:
    """A band without records has no drift, one with a single record no interval: each with its reason."""
    made = make_build(tmp_path / "corpus", [RECORDS[0], RECORDS[-1]])

    empty, single = report_of(made, make_run(tmp_path / "run", made, compute=COMPUTE)).drift

    assert (empty.verdict, empty.drift) == (
        "undefined",
        NoNumber(status="undefined", reason="fewer than 1 records in the sample"),
    )
    assert isinstance(single.drift, Number)
    assert single.low == NoNumber(status="undefined", reason="fewer than 2 records in the sample")


@pytest.mark.parametrize("settings", [{"max_drift": 1.0}, {"max_drift": 0.0, "on_drift": "fp32"}])
def test_a_real_run_is_verified(settings: dict[str, Any], tiny_llama: Path, tmp_path: Path) -> None:
    """What scoring seals, aggregate finds in the partials; a run that fell back is marked."""
    made, run = make_build(tmp_path / "corpus", notes(20, 2)), tmp_path / "run"
    reduced = {"precision": "fp32:30,mixed", "precision_check": 1.0, "max_length": 64}
    score_here(made.corpus, run, tiny_llama, **reduced, **settings)

    collected = collect(open_build(made.corpus), open_run(run))

    assert collected.drift == complete(run).drift
    assert len(collected.drift) == ("on_drift" not in settings)
    assert any("scored in fp32" in mark for mark in open_run(run).header.marks) == ("on_drift" in settings)


@pytest.mark.parametrize("precision", ["fp31", "fp32:9", "fp32:0,mixed", ""])
def test_a_precision_without_a_meaning_is_refused(precision: str, build: MadeBuild, tmp_path: Path) -> None:
    """A fingerprint whose bands make no sense is an error of the run, in one line."""
    run = make_run(tmp_path / "run", build, compute=COMPUTE)
    opened = open_run(run)
    fingerprint = opened.header.fingerprint | {"compute": {"precision": precision}}
    broken = replace(opened, header=opened.header.model_copy(update={"fingerprint": fingerprint}))

    with pytest.raises(IntegrityError, match="COMPLETE: the fingerprint's precision has no meaning; score again"):
        policy_of_run(broken)


def test_a_record_in_another_precision_is_refused(tmp_path: Path) -> None:
    """A long record that claims the precision of short ones is found by the block that holds it."""
    record = replace(RECORDS[-1], check=None)
    sound = make_build(tmp_path / "sound", [record])
    run = make_run(tmp_path / "run", sound, compute={"precision": "bf16"})
    other = make_build(tmp_path / "other", [replace(record, precision="mixed")])

    table = scored_table(other, *blocks_of(other)[0])

    with pytest.raises(IntegrityError, match="rows are not computed in the precisions of the run"):
        sums_of(table, policy_of_run(open_run(run)), "here")
