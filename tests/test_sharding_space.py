"""Before text is written it is known whether there is room, and what a build will take can be asked beforehand."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from schemas.errors import TemporaryError
from schemas.verification import verify_build
from sharding.build import build_corpus, plan_corpus
from sharding.cli import cli
from sharding.sample_files import write_sample
from tests.builds import request, some_rows, write_rows
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
    _, expected, _ = plan_corpus(wanted)
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
    _, expected, _ = plan_corpus(wanted)
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
    _, expected, _ = plan_corpus(wanted)
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


def test_the_command_prints_what_would_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheduler: str
) -> None:
    """``plan --dry-run`` says shards, blocks and bytes, as lines and as JSON, and leaves nothing but the key."""
    write_sample(tmp_path / "notes.csv", num_records=200, num_departments=2, seed=0)
    command = ["plan", tmp_path / "notes.csv", "--out", tmp_path / "c", *MAPPING, "--scheduler", scheduler, "--dry-run"]

    lines = run_command(cli, list(command), capsys)
    parsed = json.loads(run_command(cli, [*command, "--json"], capsys).out)

    assert lines.code == 0
    assert all(f"{value:,}" in lines.out for value in parsed["expected"].values())
    assert parsed["expected"].keys() == {"num_blocks", "spill_bytes", "shard_bytes", "worker_bytes"}
    assert [path.name for path in (tmp_path / "c").rglob("*") if path.is_file()] == ["record-id.key"]
