"""Unfinished work may lie on another disk; it is resumed there, found again there, and never left there unsaid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.verification import verify_build
from sharding.build import build_corpus, plan_corpus
from sharding.preparation import Request
from sharding.scratch import Scratch, scratch_of
from sharding.scratch_folders import clear, make_folder, start_over
from tests.builds import request, some_rows, write_rows
from tests.stops import stop_before_commit

SETTINGS = {"target_tokens": 2_000, "block_tokens": 500, "block_bytes": 3_000}


@pytest.fixture
def wanted(tmp_path: Path, scheduler: str) -> Request:
    """A build with its scratch on another disk."""
    source = write_rows(tmp_path / "in.csv", some_rows(60))
    made = request([source], tmp_path / "corpus", scheduler, **SETTINGS)
    return replace(made, scratch=tmp_path / "fast" / "disk")


def _stop(wanted: Request, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run everything but the commit; returns the scratch folder in the corpus."""
    stop_before_commit(wanted, monkeypatch)
    return max(wanted.corpus.glob("scratch/b-*"), key=lambda path: path.lstat().st_mtime_ns)


def test_a_chosen_folder_does_not_change_the_build(wanted: Request, tmp_path: Path) -> None:
    """The manifest is the same byte for byte, and nothing is left in either place."""
    plain = replace(wanted, corpus=tmp_path / "plain", scratch=None)

    one, two = build_corpus(plain)[0], build_corpus(wanted)[0]

    assert two.manifest == one.manifest
    assert verify_build(two, deep=True)
    assert wanted.scratch is not None
    assert list(wanted.scratch.iterdir()) == []
    assert not (wanted.corpus / "scratch").exists()


def test_the_work_lies_in_the_chosen_folder_closed_to_others(wanted: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder with a name of ours, for its owner only, and a link to it where the scratch always is."""
    link = _stop(wanted, monkeypatch)

    assert wanted.scratch is not None
    (place,) = wanted.scratch.iterdir()
    assert link.resolve() == place.resolve()
    assert place.name.startswith("exactppl-")
    assert place.stat().st_mode & 0o777 == 0o700
    assert {"survey.json", "plan.json", "spills"} <= {path.name for path in place.iterdir()}


@pytest.mark.parametrize("again", ["the same", "none"])
def test_a_resumed_build_goes_on_where_it_was_begun(
    wanted: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: str
) -> None:
    """With the same folder, and with none given; finished shards are kept."""
    _stop(wanted, monkeypatch)
    before = {path: path.stat().st_ino for path in wanted.corpus.glob("builds/*/shards/*/*.parquet")}

    made, is_new = build_corpus(wanted if again == "the same" else replace(wanted, scratch=None))

    assert is_new
    assert {path: path.stat().st_ino for path in wanted.corpus.glob("builds/*/shards/*/*.parquet")} == before
    assert verify_build(made, deep=True)
    assert wanted.scratch is not None
    assert list(wanted.scratch.iterdir()) == []
    assert "begins anew" not in capsys.readouterr().err


@pytest.mark.parametrize("first_in_corpus", [False, True])
def test_another_folder_begins_anew_and_leaves_nothing_behind(
    wanted: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    first_in_corpus: bool,
) -> None:  # fmt: skip
    """What was begun elsewhere holds note text, so it is removed, and that is said."""
    _stop(replace(wanted, scratch=None) if first_in_corpus else wanted, monkeypatch)

    made, _ = build_corpus(replace(wanted, scratch=tmp_path / "other"))

    assert "begun in another folder" in capsys.readouterr().err
    assert verify_build(made, deep=True)
    assert [path for name in ("fast", "other") for path in (tmp_path / name).rglob("exactppl-*")] == []
    assert not (wanted.corpus / "scratch").exists()


def test_a_folder_that_is_gone_is_no_obstacle(
    wanted: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that was wiped, or that of another machine: the build begins anew, and what may be left is named."""
    link = _stop(wanted, monkeypatch)
    place = link.resolve()
    clear(Scratch(place))

    made, _ = build_corpus(replace(wanted, scratch=None))

    said = capsys.readouterr().err
    assert f"fast/disk/{place.name}, in which this build was begun, is gone; it begins anew" in said
    assert "remove the folder by hand" in said
    assert verify_build(made, deep=True)


def test_what_cannot_be_seen_is_not_said_to_be_removed(
    wanted: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is away may hold note text, so the link to it is kept, and that is said."""
    link = _stop(wanted, monkeypatch)
    assert wanted.scratch is not None
    wanted.scratch.rename(tmp_path / "away")

    clear(Scratch(link))

    assert link.is_symlink()
    assert f"{link.readlink().name}: not to be seen, and may hold note text" in capsys.readouterr().err


def test_what_stopped_builds_left_on_other_disks_is_found_again(
    wanted: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next build of the corpus removes it, without being told where it is."""
    _stop(wanted, monkeypatch)
    other = replace(wanted, settings=wanted.settings.model_copy(update={"seed": 1}), scratch=None)

    build_corpus(other)

    assert wanted.scratch is not None
    assert list(wanted.scratch.iterdir()) == []
    assert not (wanted.corpus / "scratch").exists()


def test_a_link_to_a_folder_of_others_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing in it is removed or written, whatever is tried."""
    foreign = tmp_path / "precious"
    foreign.mkdir()
    (foreign / "file").write_text("x")
    scratch = scratch_of(tmp_path / "corpus", "b-0000000000000000")
    scratch.folder.parent.mkdir(parents=True)
    scratch.folder.symlink_to(foreign)

    for attempt in (make_folder, start_over):
        with pytest.raises(UsageError, match="not ours"):
            attempt(scratch)
    clear(scratch)

    assert [path.name for path in foreign.iterdir()] == ["file"]
    assert "remove it by hand" in capsys.readouterr().err


def test_a_chosen_folder_among_the_inputs_is_refused(wanted: Request, tmp_path: Path) -> None:
    """A second build would read what the first has there."""
    (tmp_path / "data").mkdir()
    write_rows(tmp_path / "data" / "in.csv", some_rows(5))
    nested = replace(wanted, inputs=[str(tmp_path / "data")], scratch=tmp_path / "data" / "scratch")

    with pytest.raises(UsageError, match="--scratch"):
        build_corpus(nested)


@pytest.mark.parametrize("on_another_disk", [False, True])
def test_a_dry_run_keeps_nothing(wanted: Request, on_another_disk: bool) -> None:
    """Its plan is that of a kept one, and of its scratch nothing is left."""
    asked = wanted if on_another_disk else replace(wanted, scratch=None)

    dry = plan_corpus(asked, dry_run=True)
    left = [path for place in (wanted.corpus, wanted.scratch) if place and place.exists() for path in place.rglob("*")]
    kept = plan_corpus(asked)

    assert dry == kept
    assert left == []
    assert len(list(wanted.corpus.glob("scratch/b-*/plan.json"))) == 1


def test_a_dry_run_keeps_what_a_build_had_left(wanted: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of an interrupted build is used, and is still there afterwards, wherever the dry run was told to work."""
    link = _stop(wanted, monkeypatch)
    before = {path.relative_to(link.resolve()): path.stat().st_ino for path in link.resolve().rglob("*.arrow")}

    plan_corpus(replace(wanted, scratch=wanted.corpus.parent / "other"), dry_run=True)

    after = {path.relative_to(link.resolve()): path.stat().st_ino for path in link.resolve().rglob("*.arrow")}
    assert after == before
    assert len(before) > 0
