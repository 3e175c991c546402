"""Synthetic notes are reproducible, independent of how many are made, and give the ledger something to show."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from schemas.errors import UsageError
from sharding.sample import COLUMNS, sample_note, sample_notes
from sharding.sample_files import write_sample
from tests.builds import build


def test_a_note_does_not_depend_on_how_many_are_made() -> None:
    """Record i of a small and of a large sample is the same; another seed gives other notes."""
    few, many = list(sample_notes(50, 3, seed=7)), list(sample_notes(120, 3, seed=7))

    assert few == many[:50]
    assert few[17] == sample_note(17, 3, seed=7)
    assert few != list(sample_notes(50, 3, seed=8))


def test_lengths_are_as_stated() -> None:
    """The mean is near 600 estimated tokens, and the spread is that of clinical notes."""
    tokens = [len(note.text) / 4 for note in sample_notes(3_000, 4, seed=0) if note.text]

    assert 540 < statistics.mean(tokens) < 660
    assert statistics.median(tokens) < statistics.mean(tokens)
    assert max(tokens) > 4 * statistics.mean(tokens)


def test_notes_differ_in_type_style_and_origin() -> None:
    """Several types and styles occur, as do copied passages, repeated texts and all departments."""
    notes = list(sample_notes(2_000, 5, seed=0))
    texts = [note.text for note in notes if note.text]

    assert len({note.department for note in notes}) == 5
    assert len({note.note_type for note in notes}) == 4
    assert len(set(texts)) < len(texts) - 10
    assert any(text.isupper() for text in texts)
    assert any("h/o" in text for text in texts)
    assert sum("copied from previous note" in text.lower() for text in texts) > 200


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_sample_builds_and_fills_the_ledger(tmp_path: Path, scheduler: str, suffix: str) -> None:
    """Null and empty texts and a repeated row are counted; everything else is kept, within the default limit."""
    path = tmp_path / f"notes{suffix}"
    write_sample(path, num_records=600, num_departments=3, seed=0)
    columns = {"id": "note_id", "text": "text", "department": "department", "features": {"sex": "sex"}}

    made = build([path], tmp_path / "corpus", scheduler, columns=columns, max_rejects="1%")

    ledger = made.manifest.ledger
    assert ledger.rejected == {"empty_text": 1, "null_text": 2}
    assert ledger.duplicates == {"identical": 1}
    assert ledger.num_read == 600
    assert len(made.manifest.departments) == 3


def test_equal_arguments_give_equal_files(tmp_path: Path) -> None:
    """Writing again is no error and changes nothing; an unknown suffix is one."""
    seals = [write_sample(tmp_path / "notes.csv", num_records=30, num_departments=2, seed=1) for _ in range(2)]

    assert seals[0] == seals[1]
    assert (tmp_path / "notes.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    with pytest.raises(UsageError, match="suffix"):
        write_sample(tmp_path / "notes.xlsx", num_records=1, num_departments=1, seed=1)
