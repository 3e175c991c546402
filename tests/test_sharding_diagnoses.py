"""Diagnosis codes fall into the chapters of the public tabular lists, or into none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.diagnoses import icd_chapter

# Borders of the chapters: their first and last category by the tabular lists.
CHAPTERS_9 = [
    *[("001", "139", "01"), ("140", "239", "02"), ("240", "279", "03"), ("280", "289", "04"), ("290", "319", "05")],
    *[("320", "389", "06"), ("390", "459", "07"), ("460", "519", "08"), ("520", "579", "09"), ("580", "629", "10")],
    *[("630", "679", "11"), ("680", "709", "12"), ("710", "739", "13"), ("740", "759", "14"), ("760", "779", "15")],
    *[("780", "799", "16"), ("800", "999", "17"), ("V01", "V91", "V"), ("E000", "E030", "E"), ("E800", "E999", "E")],
]
CHAPTERS_10 = [
    *[("A00", "B99", "01"), ("C00", "D49", "02"), ("D50", "D89", "03"), ("E00", "E90", "04"), ("F00", "F99", "05")],
    *[("G00", "G99", "06"), ("H00", "H59", "07"), ("H60", "H95", "08"), ("I00", "I99", "09"), ("J00", "J99", "10")],
    *[("K00", "K95", "11"), ("L00", "L99", "12"), ("M00", "M99", "13"), ("N00", "N99", "14"), ("O00", "O9A", "15")],
    *[("P00", "P96", "16"), ("Q00", "Q99", "17"), ("R00", "R99", "18"), ("S00", "T98", "19"), ("V00", "Y99", "20")],
    *[("Z00", "Z99", "21"), ("U00", "U85", "22")],
]


@pytest.mark.parametrize(("first", "last", "chapter"), CHAPTERS_9)
def test_icd_9_chapters_have_their_borders(first: str, last: str, chapter: str) -> None:
    """First and last category of each, with and without a digit after the point."""
    for code in (first, last, first.lower(), f"{last}.1", f"{last}1", f" {first} "):
        assert icd_chapter(code, 9) == f"icd09-{chapter}"
        assert icd_chapter(code, "9") == f"icd09-{chapter}"


@pytest.mark.parametrize(("first", "last", "chapter"), CHAPTERS_10)
def test_icd_10_chapters_have_their_borders(first: str, last: str, chapter: str) -> None:
    """First and last category of each, with and without what stands after the point."""
    for code in (first, last, first.lower(), f"{last}.1", f"{last}12AB", f"{last}.XX1A", f"{first}+", f"{first}.0*"):
        assert icd_chapter(code, 10) == f"icd10-{chapter}"


@pytest.mark.parametrize(
    "code", ["000", "38.9", "1", "E031", "E799", "V00", "V92", "428.123", "I10", "", "E80", "4280.", "x"]
)
def test_what_icd_9_does_not_have_is_none(code: str) -> None:
    """Among them codes that lost their leading zeros."""
    assert icd_chapter(code, 9) is None


@pytest.mark.parametrize(
    "code", ["D90", "E91", "H96", "K96", "P97", "T99", "428.0", "I1", "II0", "", "I10.12345", "I10-"]
)
def test_what_icd_10_does_not_have_is_none(code: str) -> None:
    """Categories between chapters, and other writings."""
    assert icd_chapter(code, 10) is None


@pytest.mark.parametrize(
    ("code", "chapter"),
    [("4280", "icd09-07"), ("I10", "icd10-09"), ("E888.9", "icd09-E"), ("E88.89", "icd10-04"), ("E119", "icd10-04")],
)
def test_a_code_that_only_one_list_has_tells_its_list(code: str, chapter: str) -> None:
    """Without a version."""
    assert icd_chapter(code) == chapter


@pytest.mark.parametrize("code", ["E8889", "V4581", "V45.81", None, ""])
def test_a_code_that_both_lists_have_is_none(code: str | None) -> None:
    """ICD-9 E888.9 and ICD-10 E88.89 are written alike without the point."""
    assert icd_chapter(code) is None


@given(st.text(max_size=8), st.sampled_from([9, 10, "9", "10", None, 11, "", "ICD"]))
def test_any_text_has_a_chapter_of_its_list_or_none(text: str, version: int | str | None) -> None:
    """No text is an error, and no chapter is of the other list."""
    found = icd_chapter(text, version)

    assert found is None or found.startswith({"9": "icd09-", "10": "icd10-"}.get(str(version), "icd"))
