"""Before text is written it is known whether there is room, and what a build will take can be asked beforehand."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import read_document
from schemas.errors import IntegrityError, TemporaryError
from schemas.verification import verify_build
from sharding.bounds import KEY_BYTES, WORKER_BYTES, bound
from sharding.build import build_corpus, plan_corpus
from sharding.cli import cli
from sharding.config import ShardingSettings
from sharding.inputs import SourceFile
from sharding.lookups import LookupJob, SideFile, make_lookups
from sharding.preparation import Request
from sharding.sample_files import write_sample
from sharding.scratch import Scratch
from sharding.scratch_documents import Survey
from sharding.scratch_folders import make_folder
from sharding.sources.adapters import ADAPTERS, source_of
from sharding.sources.encodings import transcode
from sharding.space import estimate
from sharding.spill import PART_BYTES
from tests.builds import Row, request, some_rows, write_rows
from tests.commands import run_command

MAPPING = ["--id", "note_id", "--text", "text", "--department", "department"]
SAMPLE = {"columns": {"id": "note_id", "text": "text", "department": "department"}}


class Usage(NamedTuple):
    """As of ``shutil.disk_usage``."""

    total: int
    used: int
    free: int


def _full(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, free))


def test_a_disk_without_room_stops_the_build_before_text_is_written(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary, with the bytes that are needed and free; with room the scan is used, and the build is whole."""
    source = write_rows(tmp_path / "in.csv", some_rows(60))
    wanted = request([source], tmp_path / "corpus", scheduler)
    expected = plan_corpus(wanted).expected
    needed = expected.spill_bytes + expected.shard_bytes

    with monkeypatch.context() as patch:
        _full(patch, needed - 1)
        with pytest.raises(TemporaryError, match=rf"about {needed:,} bytes are needed, {needed - 1:,} are free") as one:
            build_corpus(wanted)
        spilled = list(wanted.corpus.glob("scratch/*/spills/*"))
        _full(patch, needed)
        made, _ = build_corpus(wanted)

    assert one.value.exit_code == 75
    assert "--scratch" in str(one.value)
    assert "--ignore-space" in str(one.value)
    assert spilled == []
    assert verify_build(made, deep=True)


def test_the_check_can_be_ignored(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it is a notice, and the build goes on."""
    source = write_rows(tmp_path / "in.csv", some_rows(60))
    wanted = replace(request([source], tmp_path / "corpus", scheduler), ignore_space=True)
    _full(monkeypatch, 1)

    made, _ = build_corpus(wanted)

    assert "going on, since --ignore-space was given" in capsys.readouterr().err
    assert verify_build(made, deep=True)


def test_what_is_written_already_is_not_needed_again(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that was stopped before its commit goes on with just the room that is left to fill."""
    source = write_rows(tmp_path / "in.csv", some_rows(200))
    wanted = request([source], tmp_path / "corpus", scheduler)
    expected = plan_corpus(wanted).expected
    with monkeypatch.context() as patch:
        patch.setattr("sharding.build.commit_build", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            build_corpus(wanted)
    written = [*wanted.corpus.glob("scratch/*/spills/*"), *wanted.corpus.glob("builds/*/shards/*/*")]
    needed = expected.spill_bytes + expected.shard_bytes - sum(path.stat().st_size for path in written)
    _full(monkeypatch, max(0, needed))

    made, _ = build_corpus(wanted)

    assert len(written) > 0
    assert verify_build(made, deep=True)


def test_estimates_hold_for_notes(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For synthetic notes no less is expected than is written, at most eight times that; real ones compress less."""
    write_sample(tmp_path / "notes.parquet", num_records=2_000, num_departments=3, seed=3)
    wanted = request([tmp_path / "notes.parquet"], tmp_path / "corpus", scheduler, block_tokens=20_000, **SAMPLE)
    expected = plan_corpus(wanted).expected
    sizes = {}

    def stop(folder: Path, *_: object) -> None:
        places = {"spill": wanted.corpus.glob("scratch/*/spills/*.arrow"), "shard": folder.rglob("*.parquet")}
        sizes.update({name: sum(path.stat().st_size for path in paths) for name, paths in places.items()})
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sharding.build.commit_build", stop)
        with pytest.raises(KeyboardInterrupt):
            build_corpus(wanted)
    made, _ = build_corpus(wanted)

    assert sizes["spill"] <= expected.spill_bytes <= 8 * sizes["spill"]
    assert sizes["shard"] <= expected.shard_bytes <= 8 * sizes["shard"]
    num_blocks = sum(len(shard.blocks) for shard in made.manifest.shards)
    assert abs(expected.num_blocks - num_blocks) <= len(made.manifest.shards)


def test_memory_is_expected_for_records_too(tmp_path: Path, scheduler: str) -> None:
    """For so many as are gathered from small blocks before they are sorted by shard, and for many in one block."""
    wanted = request([write_rows(tmp_path / "in.csv", some_rows(12))], tmp_path / "corpus", scheduler)
    plan = plan_corpus(wanted).plan
    survey = read_document(next(wanted.corpus.glob("scratch/*/survey.json")), Survey)
    shard = plan.shards[0].model_copy(update={"estimated_tokens": 1 << 18})  # a megabyte of text

    few = estimate(plan, survey, wanted.settings)
    many = estimate(plan.model_copy(update={"shards": [shard] * 100}), survey, wanted.settings)
    short = estimate(plan.model_copy(update={"num_read": [1_000_000]}), survey, wanted.settings)

    assert many.worker_bytes >= WORKER_BYTES + 3 * PART_BYTES
    assert short.worker_bytes >= WORKER_BYTES + 1_000_000 * 430
    assert few.worker_bytes < WORKER_BYTES + PART_BYTES


def test_the_command_prints_what_would_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheduler: str
) -> None:
    """``plan --dry-run`` says shards, blocks and bytes, as lines and as JSON, and leaves nothing but keys."""
    write_sample(tmp_path / "notes.csv", num_records=200, num_departments=2, seed=0)
    command = ["plan", tmp_path / "notes.csv", "--out", tmp_path / "c", *MAPPING, "--scheduler", scheduler, "--dry-run"]

    lines = run_command(cli, list(command), capsys)
    parsed = json.loads(run_command(cli, [*command, "--json"], capsys).out)

    assert lines.code == 0
    assert all(f"{value:,}" in lines.out for value in parsed["expected"].values())
    assert all(f"{value:,}" in lines.out for value in parsed["bound"].values())
    assert parsed["bound"]["shard_bytes"] >= parsed["expected"]["shard_bytes"]
    assert parsed["bound"]["scratch_bytes"] >= parsed["expected"]["spill_bytes"]
    assert parsed["expected"].keys() == {"num_blocks", "spill_bytes", "shard_bytes", "worker_bytes"}
    kept = {path.name for path in (tmp_path / "c").rglob("*") if path.is_file()}
    assert kept == {"record-id.key", "owner.json", "lock", "policy.lock", "policy.json.dsse", "corpus.jsonl"}


@given(
    text=st.text(max_size=60),
    encoding=st.sampled_from(["utf-8", "cp1252", "gb18030", "utf-16", "utf-32-le", "shift_jis", "koi8_r", "big5hkscs"]),
    is_damaged=st.booleans(),
)
def test_a_copy_is_as_large_as_its_bounds_say(
    tmp_path_factory: pytest.TempPathFactory, text: str, encoding: str, is_damaged: bool
) -> None:
    """No larger and no smaller, whatever the encoding, and whether or not the bytes are in it."""
    path = tmp_path_factory.mktemp("in") / "in.csv"
    path.write_bytes(text.encode("utf-8" if is_damaged else encoding, "ignore"))
    settings = ShardingSettings.model_validate({"columns": {"text": "t"}, "encoding": encoding})
    out = io.BytesIO()

    with suppress(IntegrityError):  # not in this encoding at all
        most = bound([SourceFile.found(path, "csv")], settings)
        transcode(path, out, settings.encoding)

        copied = 0 if encoding == "utf-8" else len(out.getvalue())
        assert most.least_copy_bytes <= copied <= most.copy_bytes
        assert most.num_compressed == 0


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("length", [1, 40, 4_000])
def test_keys_are_as_many_as_records(tmp_path: Path, suffix: str, length: int) -> None:
    """However long their texts are, with quotes and newlines in them; by the head of a file, or by its metadata."""
    rows: list[Row] = [(f"n{number}", ('a "b"\n' * length)[:length], "d", None) for number in range(500)]
    path = write_rows(tmp_path / f"in.{suffix}", rows)
    settings = ShardingSettings.model_validate({"columns": {"text": "note"}})

    most = bound([SourceFile.found(path, suffix)], settings)

    assert 500 <= most.key_bytes // KEY_BYTES <= 510


@pytest.mark.parametrize("ask", [build_corpus, plan_corpus])
def test_nothing_is_copied_to_a_disk_that_is_certainly_too_small(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Request], object]
) -> None:
    """Plain copies of a compressed file are no smaller than the file; a plan asks for their room as a build does."""
    source = tmp_path / "in.csv.gz"
    source.write_bytes(gzip.compress(write_rows(tmp_path / "in.csv", some_rows(60)).read_bytes(), 0))
    wanted = request([source], tmp_path / "corpus", scheduler)
    needed = bound([SourceFile.found(source, "csv")], wanted.settings).least_copy_bytes
    _full(monkeypatch, needed - 1)

    with pytest.raises(TemporaryError, match=rf"scratch: at least {needed:,} bytes are needed for plain UTF-8 copies"):
        ask(wanted)

    assert [path for path in wanted.corpus.glob("scratch/*/*/*") if path.is_file()] == []


@pytest.mark.parametrize("ask", [build_corpus, plan_corpus])
def test_a_disk_that_may_be_too_small_is_named_and_tried(
    tmp_path: Path,
    scheduler: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ask: Callable[[Request], object],
) -> None:
    """A compressed file is taken for ten times as large, and most are not; who plans only is asked for no shards."""
    source = tmp_path / "in.csv.gz"
    source.write_bytes(gzip.compress(write_rows(tmp_path / "in.csv", some_rows(60)).read_bytes(), 1))
    wanted = request([source], tmp_path / "corpus", scheduler)
    most = bound([SourceFile.found(source, "csv")], wanted.settings)
    needed = most.scan_bytes if ask is plan_corpus else most.scratch_bytes + most.shard_bytes
    _full(monkeypatch, needed - 1)

    ask(wanted)
    said = capsys.readouterr().err
    shutil.rmtree(wanted.corpus)
    _full(monkeypatch, needed)
    ask(wanted)

    assert f"up to {needed:,} bytes may be needed, by the inputs (compressed ones taken for 10 times as large)" in said
    assert "may be needed" not in capsys.readouterr().err


def test_side_files_need_room_and_memory(tmp_path: Path) -> None:
    """What is looked up is made in one worker; files of notes alone need none of that, and side files are no text."""
    path = write_rows(tmp_path / "in.csv", some_rows(60))
    settings = ShardingSettings.model_validate({"columns": {}, "source": "mimic4"})
    notes = SourceFile.found(path, "csv")
    side = replace(notes, use="patients")

    alone, both = (bound(files, settings) for files in ([notes], [notes, side]))

    assert (alone.lookup_bytes, alone.lookup_worker_bytes) == (0, 0)
    assert both.lookup_bytes >= 60
    assert both.lookup_worker_bytes > WORKER_BYTES
    assert both.spill_bytes == alone.spill_bytes


@pytest.mark.parametrize(("use", "has_text"), [("binaries", True), ("mixed", True), ("resources", False)])
def test_a_resource_is_text_or_a_few_cells(tmp_path: Path, use: str, has_text: bool) -> None:
    """The text of binaries goes to the shards and not into lookup tables, which keep their places; a row is a row."""
    path = tmp_path / "all.ndjson"
    path.write_text('{"resourceType": "Binary", "id": "b", "data": "%s"}\n' % ("YQ" * 50_000) * 20)
    settings = ShardingSettings.model_validate({"columns": {}, "source": "fhir"})
    file = replace(SourceFile.found(path, "jsonl"), use=use)

    most = bound([file], settings)

    assert (most.spill_bytes >= file.num_bytes) == (most.shard_bytes >= file.num_bytes / 2) == has_text
    assert 20 <= most.lookup_bytes < file.num_bytes / 100
    assert WORKER_BYTES < most.lookup_worker_bytes < WORKER_BYTES + file.num_bytes
    assert (most.key_bytes > 0) == (use == "mixed")


@pytest.mark.parametrize(
    ("source", "use", "line"),
    [
        ("fhir", "binaries", '{"resourceType": "Binary", "id": "b%d", "contentType": "text/plain", "data": "YQ=="}'),
        ("fhir", "resources", '{"resourceType": "Organization", "id": "o%d", "identifier": [{"value": "%d"}]}'),
        ("mimic4", "services", "%d,%d,2150-01-01 00:00:00,MED"),
    ],
)
def test_lookup_tables_take_no_more_room_than_was_said(tmp_path: Path, source: str, use: str, line: str) -> None:
    """By the rows of the side file, whatever their length."""
    lines = [line % ((number,) * line.count("%d")) for number in range(3_000)]
    path = tmp_path / ("in.csv" if source == "mimic4" else "in.ndjson")
    path.write_text("\n".join((["subject_id,hadm_id,transfertime,curr_service"] * (source == "mimic4")) + lines) + "\n")
    settings = ShardingSettings.model_validate({"columns": {}, "source": source})
    file = replace(SourceFile.found(path, "csv" if source == "mimic4" else "jsonl"), use=use)
    header = source_of(file.format, source, use).header(path, path.read_bytes())
    scratch = Scratch(tmp_path / "scratch")
    make_folder(scratch)
    side = SideFile(file, path, ADAPTERS[source].columns(use, header))

    made = make_lookups(LookupJob(source, [side], scratch, 1 << 20))

    most = bound([file], settings).lookup_bytes
    assert sum(ledger.num_read for ledger in made.sides) == 3_000
    assert most / 20 < sum(seal.num_bytes for seal in made.tables.values()) <= most
