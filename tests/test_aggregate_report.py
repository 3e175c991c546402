"""A report depends on the records and the settings alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregate.outputs import report_files
from schemas.documents import document_bytes, parse_document
from schemas.report import Report
from schemas.tally import ExactSum, Tally, pool
from tests.made_runs import MadeRecord, made_records, make_build, make_run, report_of

FEATURES = ["age_band", "length_band"]
BY = ("department", "department,age_band", "length_band")


@settings(max_examples=8)
@given(made_records(features=2), st.integers(0, 2**32))
def test_report_is_byte_identical_for_any_number_of_ranks(records: list[MadeRecord], seed: int) -> None:
    """1, 2, 3 or 5 ranks, with the blocks dealt at random, give the same four files."""
    dealer = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = make_build(folder / "corpus", records, features=FEATURES)

        reports = []
        for num_ranks in (1, 2, 3, 5):
            deal = [dealer.randrange(num_ranks) for _ in range(len(records) * 4)]
            run = make_run(folder / f"run-{num_ranks}", build, num_ranks=num_ranks, rank_of=deal.__getitem__)
            reports.append(report_files(report_of(build, run, *BY)))

    assert all(files == reports[0] for files in reports)


@settings(max_examples=8)
@given(made_records(features=2), st.integers(0, 2**32))
def test_shuffled_and_split_input_changes_provenance_only(records: list[MadeRecord], seed: int) -> None:
    """Another order of the records in other input files leaves every figure and content digest as it was."""
    shuffled = random.Random(seed).sample(records, len(records))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = make_build(folder / "a", records, features=FEATURES)
        second = make_build(folder / "b", shuffled, features=FEATURES, inputs=(b"half", b"other half"))

        reports = [report_of(build, make_run(build.corpus / "run", build), *BY) for build in (first, second)]

    bodies = [report.model_dump(mode="json") for report in reports]
    assert bodies[0].pop("provenance") != bodies[1].pop("provenance")
    assert bodies[0] == bodies[1]


@settings(max_examples=20)
@given(made_records(features=2))
def test_figures_equal_plain_sums(records: list[MadeRecord]) -> None:
    """Whole, ledger and strata are what plain Python makes of the records."""
    with tempfile.TemporaryDirectory() as name:
        build = make_build(Path(name) / "corpus", records, features=FEATURES)
        report = report_of(build, make_run(Path(name) / "run", build), *BY)

    scored = [record for record in records if record.loss is not None]
    total = pool(Tally(ExactSum.of([record.loss or 0.0]), record.num_tokens) for record in scored)
    assert report.whole.loss_nats_exact.model_dump() == total.loss_nats.to_json()
    assert (report.whole.num_records, report.whole.num_tokens) == (len(scored), total.num_tokens)
    assert report.ledger.run.num_sharded == len(records) == report.ledger.build.num_kept
    assert sum(report.ledger.run.skipped.values()) == len(records) - len(scored)
    names = {stratum.values[0].label for stratum in report.crossings[0].strata}
    labels = {None: "(null)", "": "(empty)"}
    assert names == {labels.get(record.department, record.department) for record in records}


def test_nothing_of_the_layout_or_the_machine_is_in_the_report(tmp_path: Path) -> None:
    """No path, rank, clock or worker stands in any of the files."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A"), MadeRecord("B"), MadeRecord("C")])
    files = report_files(report_of(build, make_run(tmp_path / "run", build)))

    text = b"".join(files.values()).decode("utf-8", "replace")

    for trace in (str(tmp_path), tmp_path.name, "rank-0000", "num_ranks"):
        assert trace not in text


def test_no_text_and_no_raw_id_is_in_the_report(tmp_path: Path) -> None:
    """Neither the notes nor the source's ids reach any file."""
    build = make_build(tmp_path / "corpus", [MadeRecord("secret-mrn-17", patient="patient-4711")])

    files = report_files(report_of(build, make_run(tmp_path / "run", build)))

    for content in files.values():
        for secret in (b"synthetic note", b"secret-mrn-17", b"patient-4711"):
            assert secret not in content


def test_department_names_are_in_no_file_unless_asked_for(tmp_path: Path) -> None:
    """The label is the opaque code and the name stands nowhere, but for --department-names, which is marked."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A", department="cardiology")])
    run = make_run(tmp_path / "run", build)

    named, coded = report_of(build, run), report_of(build, run, department_names=False)

    assert named.crossings[0].strata[0].values[0].label == "cardiology"
    assert "department names shown" in named.marks
    assert "department names shown" not in coded.marks
    item = coded.crossings[0].strata[0].values[0]
    assert item.label == item.value == build.manifest.departments[0].code
    assert not any(b"cardiology" in content for content in report_files(coded).values())


def test_strata_are_ordered_by_what_people_read(tmp_path: Path) -> None:
    """Rows come by label, not by opaque code, so that a department is found where the alphabet has it."""
    names = ["urology", "cardiology", "oncology", "ENT", "nephrology"]
    build = make_build(tmp_path / "corpus", [MadeRecord(name, department=name) for name in names])

    report = report_of(build, make_run(tmp_path / "run", build))

    labels = [stratum.values[0].label for stratum in report.crossings[0].strata]
    assert labels == ["ENT", "cardiology", "nephrology", "oncology", "urology"]
    assert [entry.code for entry in build.manifest.departments] != [
        stratum.values[0].value for stratum in report.crossings[0].strata
    ]


def test_limits_are_marked_in_every_text_output(tmp_path: Path) -> None:
    """A limited build or run says so in JSON, HTML and Markdown, and its ledger counts what was left out."""
    build = make_build(tmp_path / "corpus", [MadeRecord(f"n{index}") for index in range(9)], limited_to=9)
    run = make_run(tmp_path / "run", build, limited_to=2)

    report = report_of(build, run)
    files = report_files(report)

    assert report.marks == [
        "build limited to 9 records",
        "run limited to the first 2 blocks",
        "shards not encrypted",
        "small cells shown",
        "department names shown",
    ]
    assert report.ledger.run.num_beyond_limit == 9 - report.whole.num_records > 0
    for name in ("report.json", "report.html", "report.md"):
        assert all(mark.encode() in files[name] for mark in report.marks)


def test_entries_of_the_fingerprint_that_name_the_build_are_provenance(tmp_path: Path) -> None:
    """The fingerprint is given whole: what names this build in provenance, the rest beside the figures."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A")])

    report = report_of(build, make_run(tmp_path / "run", build))

    assert report.provenance.fingerprint == {"build": {"build_id": build.manifest.build_id}}
    assert set(report.fingerprint) == {"model", "settings"}


def test_report_json_reads_back(tmp_path: Path) -> None:
    """The document survives its own reader, and a changed digit does not."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A")])
    report = report_of(build, make_run(tmp_path / "run", build))
    content = document_bytes(report)

    assert parse_document(content, Report, "report.json") == report
    assert not list(_not_finite(report.model_dump(mode="json")))


@pytest.mark.parametrize(("threads", "zone", "language"), [("1", "UTC", "C"), ("3", "Asia/Kathmandu", "tr_TR.UTF-8")])
def test_threads_time_zone_and_locale_do_not_change_a_byte(
    tmp_path: Path, threads: str, zone: str, language: str
) -> None:
    """The command gives this process's bytes under any thread count, time zone, locale and hash seed, without torch."""
    records = [MadeRecord(f"n{index}", department=f"d{index % 3}", loss=index / 7) for index in range(20)]
    build = make_build(tmp_path / "corpus", records)
    run = make_run(tmp_path / "run", build)
    surroundings = {"POLARS_MAX_THREADS": threads, "TZ": zone, "LC_ALL": language, "PYTHONHASHSEED": threads}
    program = (
        "import sys; from aggregate.cli import cli; from schemas.console import launch; code = launch(cli, 'x');"
        "sys.exit(code or 3 * ('torch' in sys.modules))"
    )

    options = ["--out", tmp_path / "out", "--department-names", "--min-cell", "0"]
    command = [sys.executable, "-c", program, "report", build.corpus, run, *options]
    done = subprocess.run(command, env={**os.environ, **surroundings}, capture_output=True, check=False)

    assert done.returncode == 0
    for name, content in report_files(report_of(build, run)).items():
        assert (tmp_path / "out" / name).read_bytes() == content


def _not_finite(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _not_finite(item)
    elif isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        yield value
