"""Rows of side files: each is read or rejected, counted once, and too many rejects are refused by the files' names."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ledgers import BuildLedger, SideLedger
from sharding.config import ShardingSettings
from sharding.inputs import SourceFile
from sharding.limits import Counted, breaches
from sharding.lookups import LookupJob, Lookups, SideFile, make_lookups
from sharding.scratch import Scratch
from sharding.scratch_folders import make_folder
from sharding.side_rows import SideRows, said_of_rejects, whole_of
from sharding.sources.adapter import MIXED, NOTES
from sharding.sources.fhir import RESOURCES
from tests.fhir_exports import FHIR, LINES, read_resources

ONE_KEPT = BuildLedger(num_read=1, num_kept=1, duplicates={}, rejected={})
COUNTS = st.dictionaries(st.sampled_from(["malformed", "undecodable", "invalid_unicode"]), st.integers(1, 50))
LEDGERS = st.builds(
    lambda num_sound, rejected: SideLedger(num_read=num_sound + sum(rejected.values()), rejected=rejected),
    st.integers(0, 10_000),
    COUNTS,
)


def _settings(max_rejects: str) -> ShardingSettings:
    return ShardingSettings.model_validate({"columns": {}, "max_rejects": max_rejects})


@given(ledgers=st.lists(LEDGERS, max_size=5), limit=st.one_of(st.integers(0, 300).map(str), st.just("1%")))
def test_the_limit_is_that_of_all_rows_of_side_files(ledgers: list[SideLedger], limit: str) -> None:
    """A count or a share of the rows of all side files; the message names those with rejects, and no others."""
    sides = [SideRows(Path(f"in/{number}.csv"), ledger) for number, ledger in enumerate(ledgers)]
    settings = _settings(limit)
    num_rejected = sum(sum(ledger.rejected.values()) for ledger in ledgers)
    allowed = settings.allowed_rejects(sum(ledger.num_read for ledger in ledgers))

    found = list(breaches(Counted(ONE_KEPT, sides, unresolved=Counter(), num_conflicts=0), settings))

    wanted = [("max_rejects_of_side_rows", num_rejected, allowed)] if num_rejected > allowed else []
    assert [(breach.limit, breach.num_found, breach.num_allowed) for breach in found] == wanted
    for breach in found:
        are_named = [f"in/{number}.csv" in breach.words for number in range(len(sides))]
        assert are_named == [bool(item.rejected) for item in ledgers]
    assert sum(whole_of(sides).rejected.values()) == num_rejected


def test_undecodable_rows_are_a_question_of_the_encoding() -> None:
    """The message says so, and lists no more names than can be read."""
    rejected = SideLedger(num_read=2, rejected={"undecodable": 1})
    sides = [SideRows(Path(f"in/{number}.csv"), rejected) for number in range(10)]

    said = said_of_rejects(sides, _settings("1%"), whole=whole_of(sides))

    assert "in/7.csv and 2 more: 10 of 20 rows of side files rejected (10 undecodable)" in said
    assert "set --encoding (it is utf-8), mend the files" in said
    assert "in/8.csv" not in said


# What a line of an export is, and how often it is a record or row, and a reject of either kind.
LINES_OF = {
    "document": json.dumps({"resourceType": "DocumentReference", "id": "d", "content": [{"attachment": {"data": ""}}]}),
    "patient": json.dumps({"resourceType": "Patient", "id": "p", "identifier": [{"value": "7"}]}),
    "late patient": json.dumps({"id": "q", "resourceType": "Patient"}),
    "observation": json.dumps({"resourceType": "Observation", "id": "o"}),
    "cut patient": '{"resourceType": "Patient", "id": "p"',
    "cut document": '{"resourceType": "DocumentReference", "id": "d"',
    "cut": '{"id": ',
    "surrogate": '{"resourceType": "Organization", "id": "o", "name": "\\ud83d"}',
    "late surrogate": '{"id": "o", "resourceType": "Organization", "name": "\\ud83d"}',
    "nameless": '{"resourceType": "Encounter"}',
}
SIDE_READ = {"patient", "late patient"}
SIDE_REJECTED = {"cut patient", "surrogate", "late surrogate", "nameless"}
NOTE_READ = {"document"}
NOTE_REJECTED = {"cut document", "cut"}


@given(kinds=st.lists(st.sampled_from(sorted(LINES_OF)), max_size=20), block_bytes=st.sampled_from([1, 100, 1 << 20]))
def test_a_line_of_a_mixed_file_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], block_bytes: int
) -> None:
    """By whoever reads the notes or by whoever reads the rest; a resource of no use by neither."""
    path = tmp_path_factory.mktemp("mixed") / "all.ndjson"
    path.write_text("".join(f"{LINES_OF[kind]}\n" for kind in kinds))
    source = FHIR.source(MIXED, LINES)
    columns = {"key": "key"}

    sides = [rows for span in source.spans(path, block_bytes) for rows in source.read(path, span, columns=columns)]
    notes, note_rejects = read_resources(path, NOTES, block_bytes=block_bytes) if kinds else (None, Counter())

    counted = Counter(kinds)
    assert sum(rows.rejected.total() for rows in sides) == sum(counted[kind] for kind in SIDE_REJECTED)
    assert sum(rows.num_read for rows in sides) == sum(counted[kind] for kind in SIDE_READ | SIDE_REJECTED)
    assert note_rejects.total() == sum(counted[kind] for kind in NOTE_REJECTED)
    assert (notes.num_rows if notes else 0) == sum(counted[kind] for kind in NOTE_READ)


def _looked_up(folder: Path, family: str, use: str, path: Path, columns: dict[str, str]) -> Lookups:
    file_format = "jsonl" if family == "fhir" else path.suffix.removeprefix(".")
    file = replace(SourceFile.found(path, file_format), use=use)
    scratch = Scratch(folder)
    make_folder(scratch)
    return make_lookups(LookupJob(family, [SideFile(file, path, columns)], scratch, 64))


def test_rows_of_tables_are_counted_by_reason(tmp_path: Path) -> None:
    """Ragged and undecodable rows of a delimited file, and what was read of it, whatever the blocks are."""
    path = tmp_path / "patients.csv"
    path.write_bytes(b"subject_id,gender,anchor_age\n1,F,50\n2,M\n3,\xff,60\n4,M,70\n")
    columns = {name: name for name in ("subject_id", "gender", "anchor_age")}

    made = _looked_up(tmp_path / "scratch", "mimic4", "patients", path, columns)
    again = _looked_up(tmp_path / "scratch", "mimic4", "patients", path, columns)

    assert made.sides == [SideLedger(num_read=4, rejected={"malformed": 1, "undecodable": 1})]
    assert again == made


def test_resources_are_rows_whatever_number_of_identifiers_they_have(tmp_path: Path) -> None:
    """A patient with identifiers is one row; a line that is no resource is a reject of a file without notes."""
    path = tmp_path / "Patient.ndjson"
    identifiers = [{"system": "s", "value": str(number)} for number in range(5)]
    patient = json.dumps({"resourceType": "Patient", "id": "p", "identifier": identifiers})
    path.write_text(f"{patient}\n{LINES_OF['cut']}\n{LINES_OF['observation']}\n")

    made = _looked_up(
        tmp_path / "scratch", "fhir", RESOURCES, path, dict(FHIR.columns(RESOURCES, LINES.header(path, b"")))
    )

    assert made.sides == [SideLedger(num_read=2, rejected={"malformed": 1})]
