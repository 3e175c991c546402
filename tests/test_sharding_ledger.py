"""Every record that is read is kept, a duplicate or rejected, by reason; what cannot be decided stops the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import DataError, UsageError
from sharding.build import plan_corpus
from sharding.config import ShardingSettings
from sharding.identity import RecordKey
from tests.builds import KEY, build, records_of, request, write_rows

CONFLICT = [("1", "first words", "d", "p"), ("1", "second words", "d", "p"), ("2", "b", "d", "p")]


def test_duplicates_and_rejects_are_counted_by_reason(tmp_path: Path, scheduler: str) -> None:
    """Each reason has its count in the whole ledger and in that of its department."""
    rows = [
        ("1", "a", "d", "p"),
        ("1", "a", "d", "p"),
        ("1", "a", "other", "p"),
        ("2", None, "d", "p"),
        ("3", "", "d", "p"),
        (None, "a", "d", "p"),
        ("4", "x" * 101, "d", "p"),
        ("5", "  \t\r\n\u00a0\u3000", "d", "p"),
        ("10", " \t. \n", "d", "p"),
        ("6", "a\x00b", "d", "p"),
    ]
    source = write_rows(tmp_path / "in.csv", rows)
    with source.open("ab") as file:
        file.write(b'"7","ragged"\n"8","\xff","d","p"\n')
    lines = tmp_path / "in.jsonl"
    lines.write_bytes(b'{"note_id": "9", "note": "\\ud83d", "dept": "d", "mrn": "p"}\n{"note_id"\n')

    made = build([source, lines], tmp_path / "corpus", scheduler, max_record_bytes=100)

    ledger = made.manifest.ledger
    assert ledger.num_read == 14
    assert ledger.duplicates == {"identical": 1, "other_columns": 1}
    assert ledger.rejected == {
        "null_text": 1,
        "empty_text": 2,
        "null_id": 1,
        "too_long": 1,
        "malformed": 2,
        "undecodable": 1,
        "invalid_unicode": 1,
    }
    assert ledger.balances
    kept = {row["raw_id"]: row["text"] for row in records_of(made)}
    assert kept == {"1": "a", "10": " \t. \n", "6": "a\x00b"}
    assert sorted(entry.num_read for entry in made.manifest.inputs) == [2, 12]


def test_departments_that_systems_confuse_stay_apart(tmp_path: Path, scheduler: str) -> None:
    """Null, empty, and names that are paths, numbers or null words each have a code, shards and a view of their own."""
    names = ["OB/GYN", "..", "a=b", "科室", "", None, "__HIVE_DEFAULT_PARTITION__", "NA", "None", "nan", "001", "1"]
    rows = [(f"n{number}", "text", name, None) for number, name in enumerate(names)]
    source = write_rows(tmp_path / "in.jsonl", rows)

    made = build([source], tmp_path / "corpus", scheduler)

    views = [made.view(entry.code) for entry in made.manifest.departments]
    key = RecordKey(bytes.fromhex(KEY))
    assert {view.code: view.name for view in views} == {key.department_code(name): name for name in names}
    assert all(view.ledger.num_kept == view.ledger.num_read == 1 for view in views)


def test_one_id_with_two_texts_is_an_error_with_a_cure(tmp_path: Path, scheduler: str) -> None:
    """The message counts and says what to do; it holds neither ids nor texts."""
    source = write_rows(tmp_path / "in.csv", CONFLICT)

    with pytest.raises(DataError, match=r"1 records have the id of another record.*--on-conflict keep") as caught:
        build([source], tmp_path / "corpus", scheduler)

    assert "words" not in str(caught.value)


def test_keep_takes_the_same_text_in_any_order(tmp_path: Path, scheduler: str) -> None:
    """With ``keep`` one of the texts wins, whichever comes first, and the other is counted."""
    forward = write_rows(tmp_path / "a.csv", CONFLICT)
    backward = write_rows(tmp_path / "b.csv", CONFLICT[::-1])

    one = build([forward], tmp_path / "one", scheduler, on_conflict="keep")
    two = build([backward], tmp_path / "two", scheduler, on_conflict="keep")

    assert one.manifest.content_digest == two.manifest.content_digest
    assert one.manifest.ledger.duplicates == {"other_text": 1}


def test_too_many_rejects_stop_the_build_with_the_ledger(tmp_path: Path, scheduler: str) -> None:
    """Above the limit the message says how many of what there are."""
    source = write_rows(tmp_path / "in.csv", [("1", "a", "d", "p"), ("2", None, "d", "p")])

    with pytest.raises(DataError, match=r"1 records rejected.*2 read = 1 kept \+ 1 rejected null_text"):
        build([source], tmp_path / "corpus", scheduler, max_rejects="1%")

    assert not (tmp_path / "corpus" / "CURRENT").exists()


@pytest.mark.parametrize("rows", [[], [("1", None, "d", "p")]])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_nothing_left_is_an_error(tmp_path: Path, scheduler: str, rows: list, suffix: str) -> None:
    """A build without a record is never committed."""
    source = write_rows(tmp_path / f"in{suffix}", rows)

    with pytest.raises(DataError, match="no record is left"):
        build([source], tmp_path / "corpus", scheduler)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_without_an_id_equal_rows_are_duplicates(tmp_path: Path, scheduler: str, suffix: str) -> None:
    """The whole row makes the id, columns that are not mapped too; only equal rows meet, and the raw id is null."""
    rows = [("1", "a", "d", "p"), ("1", "a", "d", "p"), ("2", "a", "d", "p"), ("3", "a", "d", None)]
    source = write_rows(tmp_path / f"in{suffix}", rows)
    columns = {"text": "note", "department": "dept"}

    made = build([source], tmp_path / "corpus", scheduler, columns=columns)

    assert made.manifest.ledger.duplicates == {"identical": 1}
    assert [row["raw_id"] for row in records_of(made)] == [None, None, None]


def test_without_an_id_two_days_of_one_year_are_two_records(tmp_path: Path, scheduler: str) -> None:
    """The raw cells tell rows apart, though the features made of them are the same."""
    source = write_rows(tmp_path / "in.csv", [("2019-05-17", "a", "d", "p"), ("2019-05-18", "a", "d", "p")])
    columns = {"text": "note", "department": "dept", "features": {"year": "year(note_id)"}}

    made = build([source], tmp_path / "corpus", scheduler, columns=columns)

    assert [row["feature.year"] for row in records_of(made)] == ["2019", "2019"]


def test_without_an_id_every_format_gives_the_same_ids(tmp_path: Path, scheduler: str) -> None:
    """Formats and the order of columns do not show in ids that are made from whole rows."""
    rows = [("1", "a", None, "p"), ("2", "b", "d", None)]
    sources = [write_rows(tmp_path / f"in{suffix}", rows) for suffix in (".csv", ".jsonl", ".parquet")]
    turned = write_rows(tmp_path / "turned.csv", [row[::-1] for row in rows], ("mrn", "dept", "note", "note_id"))
    columns = {"text": "note", "department": "dept"}

    made = [
        build([source], tmp_path / f"corpus-{number}", scheduler, columns=columns)
        for number, source in enumerate([*sources, turned])
    ]

    assert len({build.manifest.content_digest for build in made}) == 1


def test_a_column_that_never_occurs_is_an_error(tmp_path: Path, scheduler: str) -> None:
    """In JSON Lines a mapped column may be absent from some records, but not from all."""
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"note_id": "1", "note": "a", "mrn": "p"}\n{"note_id": "2", "note": "b"}\n')

    with pytest.raises(UsageError, match=r"no column 'dept' \(--department\)"):
        build([source], tmp_path / "corpus", scheduler)


def test_a_plan_writes_no_build_and_a_build_goes_on_from_it(tmp_path: Path, scheduler: str) -> None:
    """Pass 1 alone tells what would be written, and the build then writes just that."""
    source = write_rows(tmp_path / "in.csv", [("1", "a", "d", "p"), ("2", "b", "e", "p")])
    wanted = request([source], tmp_path / "corpus", scheduler)

    planned = plan_corpus(wanted)
    is_dry = not (tmp_path / "corpus" / "builds").exists()
    made = build([source], tmp_path / "corpus", scheduler)

    assert is_dry
    assert made.manifest.build_id == planned.build_id
    assert [shard.shard_id for shard in planned.plan.shards] == [shard.shard_id for shard in made.manifest.shards]
    assert planned.plan.multiset_digest == made.manifest.multiset_digest


@pytest.mark.parametrize(("total", "expected"), [(0, 16_384), (3_072 * 20_000, 20_000), (10**12, 1_048_576)])
def test_automatic_blocks_follow_the_size_of_the_build(total: int, expected: int) -> None:
    """3,072 blocks a build, within limits."""
    settings = ShardingSettings.model_validate({"columns": {"text": "t"}})

    assert settings.block_tokens_for(total) == expected


@pytest.mark.parametrize(("limit", "allowed"), [("1%", 12), ("0.5%", 6), ("7", 7), (7, 7), ("0", 0), ("100%", 1_234)])
def test_reject_limits_are_counts_or_shares(limit: object, allowed: int) -> None:
    """A share is of the records read, rounded down."""
    settings = ShardingSettings.model_validate({"columns": {"text": "t"}, "max_rejects": limit})

    assert settings.allowed_rejects(1_234) == allowed
