"""A build counts identifiers by department, refuses too many of them, and tells none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("presidio_analyzer", exc_type=ImportError)

from schemas.documents import read_document
from schemas.errors import DataError, IntegrityError
from schemas.folders import Build
from schemas.ledgers import PhiCount
from schemas.manifests import Refusal
from schemas.verification import check_views, verify_build
from sharding.inspection import describe_build, lines_of
from tests.builds import build, write_rows

CANARY = "Canaryworth"
ROWS = [
    ("1", f"seen by Dr. {CANARY} on 03/14/2019 and 03/15/2019", "a", "p"),
    ("2", "nothing of the kind, 120/80", "a", "p"),
    ("3", "on March 3, 2021", "b", "p"),
]


@pytest.mark.slow
def test_counts_of_departments_add_up_and_hold_no_text(tmp_path: Path, scheduler: str) -> None:
    """Views sum to the manifest, inspection shows the counts, a rerun gives the same, and no document has a match."""
    source = write_rows(tmp_path / "in.csv", ROWS)

    made = build([source], tmp_path / "corpus", scheduler, phi_scan=True, max_phi="2")
    again = build([source], tmp_path / "again", scheduler, phi_scan=True, max_phi="2", block_bytes=80)

    verify_build(made, deep=True)
    assert made.manifest == again.manifest
    assert made.manifest.phi == {
        "any": PhiCount(findings=4, records=2),
        "date": PhiCount(findings=3, records=2),
        "name_after_title": PhiCount(findings=1, records=1),
    }
    assert {view_phi(made, entry.code) for entry in made.manifest.departments} == {(3, 1), (1, 1)}
    assert made.manifest.config["phi_scanner"].startswith("presidio-analyzer ")
    assert any(line.split() == ["identifiers:", "date", "2", "records", "3", "findings"] for line in said(made))
    assert all(CANARY.encode() not in path.read_bytes() for path in made.folder.rglob("*.json"))


def test_without_a_scan_nothing_is_said_of_identifiers(tmp_path: Path, scheduler: str) -> None:
    """No scan is told apart from a scan that found nothing."""
    source = write_rows(tmp_path / "in.csv", ROWS)

    made = build([source], tmp_path / "corpus", scheduler)

    assert (made.manifest.phi_scanned, made.manifest.phi) == (False, {})
    assert not any("identifiers" in line for line in said(made))


@pytest.mark.slow
def test_more_records_with_identifiers_than_allowed_are_refused(tmp_path: Path, scheduler: str) -> None:
    """The refusal has the counts, and neither it nor the message has a match."""
    source = write_rows(tmp_path / "in.csv", ROWS)

    with pytest.raises(DataError, match="2 of 3 records") as caught:
        build([source], tmp_path / "corpus", scheduler, phi_scan=True, max_phi="50%")

    path = next((tmp_path / "corpus" / "refused").iterdir())
    refused = read_document(path, Refusal)
    assert (refused.limit, refused.num_found, refused.num_allowed) == ("max_phi", 2, 1)
    assert refused.phi["date"] == PhiCount(findings=3, records=2)
    assert CANARY not in path.read_text() + str(caught.value)


@pytest.mark.slow
def test_counts_that_do_not_sum_are_refused(tmp_path: Path, scheduler: str) -> None:
    """A manifest that tells of fewer identifiers than the views is no sound one."""
    made = build([write_rows(tmp_path / "in.csv", ROWS)], tmp_path / "corpus", scheduler, phi_scan=True)
    fewer = made.manifest.model_copy(update={"phi": {}})

    with pytest.raises(IntegrityError, match="phi"):
        check_views(dataclasses.replace(made, manifest=fewer))


def view_phi(made: Build, code: str) -> tuple[int, int]:
    """Findings and records of any kind of a department."""
    count = made.view(code).phi["any"]
    return count.findings, count.records


def said(made: Build) -> list[str]:
    """What inspection prints."""
    return list(lines_of(describe_build(made)))
