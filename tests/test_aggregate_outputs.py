"""Publishing a report: whole, idempotent, and never over another one by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregate.outputs import publish_report, report_files
from schemas.errors import UsageError
from schemas.report import Report
from tests.made_runs import MadeRecord, make_build, make_run, report_of


@pytest.fixture
def reports(tmp_path: Path) -> list[Report]:
    """Two reports of one run."""
    build = make_build(tmp_path / "corpus", [MadeRecord("A")])
    run = make_run(tmp_path / "run", build)
    return [report_of(build, run), report_of(build, run, department_names=False)]


def contents(folder: Path) -> dict[str, bytes]:
    """What lies in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_report_is_written_once_and_then_left_alone(reports: list[Report], tmp_path: Path) -> None:
    """The folder is made, holds exactly the four files, and a second publication touches nothing."""
    folder = tmp_path / "deep" / "out"
    assert publish_report(reports[0], folder, force=False)
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}

    again = publish_report(reports[0], folder, force=False)

    assert not again
    assert contents(folder) == report_files(reports[0])
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == times


def test_another_report_is_replaced_only_by_force(reports: list[Report], tmp_path: Path) -> None:
    """A different report is refused and left whole; with force all four files are replaced."""
    publish_report(reports[0], tmp_path / "out", force=False)

    with pytest.raises(UsageError, match="--force"):
        publish_report(reports[1], tmp_path / "out", force=False)
    assert contents(tmp_path / "out") == report_files(reports[0])

    assert publish_report(reports[1], tmp_path / "out", force=True)
    assert contents(tmp_path / "out") == report_files(reports[1])


def test_interrupted_publication_is_completed(reports: list[Report], tmp_path: Path) -> None:
    """A folder that lacks some files of this report gets them; files of others are left alone."""
    publish_report(reports[0], tmp_path / "out", force=False)
    (tmp_path / "out" / "report.json").unlink()
    (tmp_path / "out" / "notes.txt").write_bytes(b"mine")

    assert publish_report(reports[0], tmp_path / "out", force=False)

    assert contents(tmp_path / "out") == {**report_files(reports[0]), "notes.txt": b"mine"}


def test_a_folder_that_cannot_be_made_is_a_usage_error(reports: list[Report], tmp_path: Path) -> None:
    """A file in the place of the folder is reported as such."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(UsageError, match="no folder can be made here"):
        publish_report(reports[0], tmp_path / "file", force=False)
