"""Builds with groups, department codes and derived features: what was planned is what stands in the shards."""

from __future__ import annotations

import json
import pickle
import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.dealing import assign, imbalance
from schemas.errors import DataError
from schemas.folders import Build
from schemas.shard_files import read_shard
from schemas.verification import verify_build
from scoring.assignment import blocks_of
from sharding.cli import cli
from tests.builds import Row, build, write_rows
from tests.commands import run_command
from tests.exports import MIMIC4, write_export

HEADER = ("note_id", "note", "unit", "mrn", "at", "years", "code", "gender")
COLUMNS = {"id": "note_id", "text": "note", "department": "unit", "patient": "mrn", "time": "at"}
FEATURES = {"year": "year(at)", "age": "age_band(years)", "chapter": "icd10_chapter(code)", "sex": "sex(gender)"}
DEPARTMENTS = {"Cardiology": "CARD", "心内科": "CARD", "Onco": "ONC"}
GROUPED = {"columns": COLUMNS, "group": "patient", "target_tokens": 900, "block_tokens": 120}


def stays(num_rows: int) -> list[Row]:
    """Notes of patients of uneven lengths of stay, some without a patient and some without a time."""
    draw = random.Random(5)
    rows = []
    for number in range(num_rows):
        patient = None if number % 11 == 0 else f"p{int(draw.paretovariate(0.6)) % 40}"
        at = (
            None
            if number % 13 == 0
            else f"2019-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d} 10:{number % 60:02d}"
        )
        unit = draw.choice(["Cardiology", "CARDIOLOGY ", "心内科", "onco"])
        text = f"note {number} " * draw.randint(1, 12)
        rows.append((f"n{number}", text, unit, patient, at, str(number % 100), "I10", "F"))
    return rows


def tables_of(made: Build) -> list[pa.Table]:
    """All shards."""
    return [read_shard(made, shard) for shard in made.manifest.shards]


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> Build:
    """A build of whole patients."""
    folder = tmp_path_factory.mktemp("grouped")
    source = write_rows(folder / "in.csv", stays(400), HEADER)
    return build([source], folder / "c", scheduler, **GROUPED, departments=DEPARTMENTS)


def test_a_patient_is_in_one_shard_and_in_the_order_of_time(grouped: Build) -> None:
    """Per department; those without a time come last."""
    times = {row[0]: row[4] or "9999" for row in stays(400)}
    found: dict[tuple[str, bytes], set[int]] = {}

    for number, table in enumerate(tables_of(grouped)):
        rows = table.select(["raw_id", "patient_id", "department"]).to_pylist()
        for row in rows:
            if row["patient_id"]:
                found.setdefault((row["department"], row["patient_id"]), set()).add(number)
        same = [
            (one, two) for one, two in pairwise(rows) if one["patient_id"] and one["patient_id"] == two["patient_id"]
        ]
        assert all(times[one["raw_id"]] <= times[two["raw_id"]] for one, two in same)
        runs = 1 + sum(one["patient_id"] != two["patient_id"] or not one["patient_id"] for one, two in pairwise(rows))
        assert runs == len({row["patient_id"] or row["raw_id"] for row in rows})

    assert {len(shards) for shards in found.values()} == {1}
    assert len(grouped.manifest.shards) > 4


def test_blocks_split_only_patients_that_are_larger(grouped: Build) -> None:
    """A border between two notes of one patient means that the patient alone is more than a block."""
    num_inner = 0
    for shard, table in zip(grouped.manifest.shards, tables_of(grouped), strict=True):
        patients, tokens = table.column("patient_id").to_pylist(), table.column("estimated_tokens").to_pylist()
        border = 0
        for block in shard.blocks[:-1]:
            border += block.num_records
            if patients[border] and patients[border] == patients[border - 1]:
                num_inner += 1
                assert sum(size for name, size in zip(patients, tokens, strict=True) if name == patients[border]) > 120

    assert num_inner > 0
    verify_build(grouped, deep=True)


@pytest.mark.parametrize(("name", "block_bytes"), [("in.csv", 1_000), ("in.parquet", 1 << 20), ("in.jsonl", 7_000)])
def test_order_format_and_block_size_do_not_matter(
    name: str, block_bytes: int, tmp_path: Path, scheduler: str, grouped: Build
) -> None:
    """The same groups give the same shards, byte for byte of their content."""
    rows = stays(400)
    random.Random(block_bytes).shuffle(rows)
    parts = [write_rows(tmp_path / f"{index}-{name}", rows[index::2], HEADER) for index in range(2)]

    made = build(parts, tmp_path / "c", scheduler, **GROUPED, departments=DEPARTMENTS, block_bytes=block_bytes)

    assert made.manifest.content_digest == grouped.manifest.content_digest
    assert made.manifest.balance == grouped.manifest.balance


def test_the_planned_balance_is_that_of_the_blocks_that_were_written(grouped: Build) -> None:
    """Blocks are cut as planned, so ranks will find the work that the manifest foretells."""
    blocks = blocks_of(grouped.manifest)

    for rank in grouped.manifest.balance.ranks:
        assert rank.token_max_over_mean == imbalance(blocks, assign(blocks, rank.num_ranks))
    assert [entry.code for entry in grouped.manifest.balance.departments] == [
        entry.code for entry in grouped.manifest.departments
    ]


def test_the_planned_balance_holds_without_groups_too(tmp_path: Path, scheduler: str) -> None:
    """Single records are cut into blocks as planned."""
    source = write_rows(tmp_path / "in.csv", stays(400), HEADER)
    columns = {key: column for key, column in COLUMNS.items() if key != "time"}

    made = build([source], tmp_path / "c", scheduler, **{**GROUPED, "columns": columns, "group": "none"})

    blocks = blocks_of(made.manifest)
    ratios = [imbalance(blocks, assign(blocks, rank.num_ranks)) for rank in made.manifest.balance.ranks]
    assert [rank.token_max_over_mean for rank in made.manifest.balance.ranks] == ratios


def test_features_and_departments_are_resolved(tmp_path: Path, scheduler: str) -> None:
    """By function and table; what could not be read is null and counted in the manifest."""
    rows: list[Row] = [
        ("a", "first note", "cardiology", "1", "2019-05-17", "47", "I10", "F"),
        ("b", "second note", "Derma", "1", "May 2019", "300", "T99", "?"),
        ("c", "third note", None, "1", None, None, None, None),
    ]
    source = write_rows(tmp_path / "in.parquet", rows, HEADER)
    changes = {"columns": {**COLUMNS, "features": FEATURES}, "group": "patient", "on_unknown": "unknown"}

    made = build([source], tmp_path / "c", scheduler, **changes, departments=DEPARTMENTS)

    records = sorted((row for table in tables_of(made) for row in table.to_pylist()), key=lambda row: row["raw_id"])
    names = ("department", "feature.year", "feature.age", "feature.chapter", "feature.sex")
    assert [tuple(row[name] for name in names) for row in records] == [
        ("CARD", "2019", "40-49", "icd10-09", "female"),
        ("UNKNOWN", None, "90+", None, None),
        (None, None, None, None, None),
    ]
    assert made.manifest.unresolved == {"chapter": 1, "sex": 1, "time": 1, "unlisted_department": 1, "year": 1}
    assert {made.view(entry.code).name for entry in made.manifest.departments} == {"CARD", "UNKNOWN", None}
    assert made.manifest.features == ["age", "chapter", "length_band", "sex", "year"]


def test_no_department_is_named_outside_its_view(grouped: Build) -> None:
    """The table of spellings is in the build's id, and in the manifest only as a keyed digest."""
    manifest = (grouped.folder / "manifest.json").read_text(encoding="utf-8")

    assert all(name not in manifest for name in (*DEPARTMENTS, *DEPARTMENTS.values()))
    assert len(grouped.manifest.config["departments"]) == 32


def test_no_message_to_the_workers_names_a_department(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedulers and dashboards see tasks and results: neither the hospital's spellings nor its codes are in them."""
    from distributed import Client, Future

    seen: list[bytes] = []
    submit, result = Client.submit, Future.result
    monkeypatch.setattr(
        Client, "submit", lambda self, *task, **more: seen.append(pickle.dumps(task)) or submit(self, *task, **more)
    )
    monkeypatch.setattr(
        Future, "result", lambda self, *more: seen.append(pickle.dumps(found := result(self, *more))) or found
    )
    source = write_rows(tmp_path / "in.csv", stays(60), HEADER)

    made = build([source], tmp_path / "c", scheduler, **GROUPED, departments=DEPARTMENTS)

    assert {made.view(entry.code).name for entry in made.manifest.departments} == {"CARD", "ONC"}
    assert len(seen) > 2 * len(made.manifest.shards)
    names = [name.encode() for name in (*DEPARTMENTS, *DEPARTMENTS.values())]
    assert not any(name in message for message in seen for name in names)


def test_an_unknown_department_can_fail_the_build(tmp_path: Path, scheduler: str) -> None:
    """With the number of records, never the name."""
    source = write_rows(tmp_path / "in.csv", stays(20), HEADER)
    table = {"Cardiology": "CARD"}

    with pytest.raises(DataError, match=r"[0-9]+ records have a department that is in no entry") as caught:
        build([source], tmp_path / "c", scheduler, **GROUPED, departments=table, on_unknown="fail")

    assert "心内科" not in str(caught.value)
    assert caught.value.exit_code == 65


def test_the_command_line_takes_all_of_it(tmp_path: Path, scheduler: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A table of departments from the TOML file, the rest by flags; ``inspect`` shows balance and what was not read."""
    source = write_rows(tmp_path / "in.csv", stays(60), HEADER)
    config = tmp_path / "settings.toml"
    config.write_text('[sharding]\nseed = 3\n\n[departments]\n"Cardiology" = "CARD"\n"心内科" = "CARD"\n', "utf-8")
    flags = [part for role, column in COLUMNS.items() for part in (f"--{role}", column)]
    flags += ["--feature", "year=year(at)", "--feature", "chapter=icd10_chapter(code)", "--group", "patient"]
    where = ["--out", tmp_path / "c", "--config", config, "--scheduler", scheduler]

    built = run_command(cli, ["build", source, *where, *flags, "--on-unknown", "unknown"], capsys)
    shown = run_command(cli, ["inspect", tmp_path / "c"], capsys)
    as_json = run_command(cli, ["inspect", tmp_path / "c", "--json"], capsys)

    assert built.code == shown.code == 0, built.err
    num_unknown = sum(row[2] == "onco" for row in stays(60))
    told = json.loads(as_json.out)
    assert told["unresolved"] == {"unlisted_department": num_unknown}
    assert [rank["num_ranks"] for rank in told["balance"]["ranks"]] == [1, 2, 4, 8, 16, 32, 64]
    assert "balance of shards" in shown.out
    assert "balance of ranks" in shown.out


@pytest.mark.parametrize(
    ("toml", "flags", "said"),
    [
        ('[departments]\n"Icu" = "A"\n"ICU " = "B"\n', [], ["2 spellings are alike", "settings.toml"]),
        ('[departments]\n"Icu" = 3\n', [], ["a table of spellings and codes"]),
        ("", ["--on-unknown", "fail"], ["--on-unknown fail needs spellings"]),
        ("", ["--group", "encounter"], ["--group encounter needs its ids"]),
        ("", ["--group", "ward"], ["sharding.group (--group)"]),
        ("", ["--time", "at"], ["--time orders the records of a group"]),
        ("", ["--feature", "a=yeer(at)", "--feature", "b=sex(", "--seed", "x"], ["features.a", "features.b", "--seed"]),
        ('[departments]\n"a" = "b"\n[sharding.departments]\n"a" = "b"\n', [], ["write it once"]),
    ],
)
def test_wrong_settings_are_refused_without_a_name(
    toml: str, flags: list[str], said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line with all that is wrong, in which no department stands."""
    source = write_rows(tmp_path / "in.csv", stays(3), HEADER)
    config = tmp_path / "settings.toml"
    config.write_text(toml, "utf-8")

    done = run_command(
        cli, ["build", source, "--out", tmp_path / "c", "--config", config, "--text", "note", *flags], capsys
    )

    assert done.code == 2
    assert all(part in done.err for part in said)
    assert "Icu" not in done.err
    assert "ICU" not in done.err


def test_notes_of_a_family_are_grouped_too(tmp_path: Path, scheduler: str) -> None:
    """A patient's notes of a MIMIC-IV export, in one shard and in the order of their chart times."""
    notes = [
        {
            "note_id": f"n{number}",
            "subject_id": f"p{number % 7}",
            "note_type": "DS",
            "text": f"note {number} " * 9,
            "charttime": f"2150-01-{1 + number * 17 % 28:02d} 10:00:00",
        }
        for number in range(80)
    ]
    write_export(tmp_path / "in", MIMIC4, {"discharge": notes}, suffix=".csv")
    changes = {"columns": {}, "source": "mimic4", "group": "patient", "target_tokens": 500}

    made = build([tmp_path / "in"], tmp_path / "c", scheduler, **changes)

    times = {note["note_id"]: note["charttime"] for note in notes}
    shards: dict[bytes, set[int]] = {}
    for number, table in enumerate(tables_of(made)):
        rows = table.to_pylist()
        for row in rows:
            shards.setdefault(row["patient_id"], set()).add(number)
        for one, two in pairwise(rows):
            assert one["patient_id"] != two["patient_id"] or times[one["raw_id"]] <= times[two["raw_id"]]
    assert len(made.manifest.shards) > 1
    assert len(shards) == 7
    assert {len(found) for found in shards.values()} == {1}
