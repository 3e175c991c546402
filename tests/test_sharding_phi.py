"""Identifiers that have a form are counted by kind, near misses are not, and nothing of a text is told."""

from __future__ import annotations

import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

pytest.importorskip("presidio_analyzer", exc_type=ImportError)

from schemas.errors import UsageError
from sharding.config import ShardingSettings
from sharding.phi import count_identifiers, require_presidio

KINDS = {
    "phone": "call (212) 456-7890 today",
    "email": "write to jane.roe@hospital.example soon",
    "ssn": "SSN 536-22-1843 on file",
    "mrn": "MRN: 00482913 was seen",
    "date": "admitted 03/14/2019 from home",
    "url": "see https://www.clinic-page.com for more",
    "ip": "from host 10.20.30.40 at noon",
    "name_after_title": "seen by Dr. Whitcomb in clinic",
    "account": "paid with 4111 1111 1111 1111 then",
    "device": "pump at 00:1B:44:11:3A:B7 was checked",
}
NEAR_MISSES = [
    "blood pressure 120/80, pain 5/10",
    "version 1.2.3 of the form",
    "surgery in 2019, since 1998",
    "the doctor saw him, and mr. nobody did not",
    "WBC 9.1, hemoglobin 12.5, platelets 250",
    "MRN not given, medical record reviewed",
    "he may 10 times a day, 5 mg at 7:30",
]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_once_and_nothing_else(kind: str) -> None:
    """A text with one identifier has one finding, of its kind."""
    found = count_identifiers([KINDS[kind]])

    assert dict(found.findings) == {kind: 1}
    assert dict(found.records) == {kind: 1}
    assert found.num_any == 1


@pytest.mark.parametrize("text", ["March 3, 2021", "3rd of March 2021", "March 2021", "2021-03-03", "03/2021"])
def test_dates_finer_than_a_year_are_found_in_words_and_digits(text: str) -> None:
    """A month with its year is finer than a year."""
    assert dict(count_identifiers([f"on {text} at noon"]).findings) == {"date": 1}


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_near_misses_are_not_counted(text: str) -> None:
    """Measurements, years, versions and titles in lower case are no identifiers."""
    assert count_identifiers([text]).num_any == 0


@given(st.lists(st.sampled_from([*KINDS.values(), *NEAR_MISSES]), max_size=6), st.integers(0, 6))
def test_counts_of_parts_add_up(texts: list[str], border: int) -> None:
    """Wherever texts are cut into two lots, the counts of both sum to those of all."""
    whole = count_identifiers(texts)

    first, second = count_identifiers(texts[:border]), count_identifiers(texts[border:])

    assert first.findings + second.findings == whole.findings
    assert first.records + second.records == whole.records
    assert first.num_any + second.num_any == whole.num_any


def test_findings_and_records_are_counted_apart() -> None:
    """Two findings in one record are two findings and one record."""
    found = count_identifiers([f"{KINDS['date']}, and 04/15/2019", "nothing here"])

    assert (found.findings["date"], found.records["date"], found.num_any) == (2, 1, 1)


def test_nothing_is_logged_or_printed(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """At the lowest level of logging nothing is said while texts are read."""
    with caplog.at_level(logging.DEBUG):
        count_identifiers(KINDS.values())

    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent extra is an error of usage that names its cure."""
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)

    with pytest.raises(UsageError, match=r"^--phi-scan: .* pip install exactppl\[phi\]$"):
        require_presidio()


def test_a_limit_without_a_scan_is_refused() -> None:
    """What is not counted cannot be limited."""
    with pytest.raises(ValidationError, match="--max-phi limits what --phi-scan counts"):
        ShardingSettings.model_validate({"columns": {"text": "t"}, "max_phi": "1%"})
