"""What a second run does in a corpus: it trusts no name, takes nothing away, and leaves no note text behind."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.errors import IntegrityError, PipelineError, TemporaryError, UsageError
from schemas.folders import Build, open_build
from schemas.seals import wrapped_write
from schemas.verification import verify_build
from sharding.build import build_corpus, plan_corpus
from sharding.commit import make_current
from sharding.identity import make_key
from sharding.lock import locked
from sharding.preparation import Request
from sharding.scratch import scratch_of
from sharding.scratch_folders import clear, make_folder
from tests.builds import build, request, some_rows, write_rows

OLD_ID = "b-00000000000000aa"


@pytest.fixture
def wanted(tmp_path: Path, scheduler: str) -> Request:
    """A small build that was not made yet."""
    return request([write_rows(tmp_path / "in.csv", some_rows(20))], tmp_path / "corpus", scheduler)


def _cut(made: Build) -> None:
    path = made.shard_path(made.manifest.shards[0])
    path.write_bytes(path.read_bytes()[:-5])


def _without_shard(made: Build) -> None:
    made.shard_path(made.manifest.shards[0]).unlink()


def _with_foreign_file(made: Build) -> None:
    (made.folder / "shards" / "foreign.parquet").write_bytes(b"x")


def _without_manifest(made: Build) -> None:
    (made.folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_cut, r"-00000\.parquet"),
        (_without_shard, r"-00000\.parquet"),
        (_with_foreign_file, r"foreign\.parquet"),
        (_without_manifest, r"manifest\.json"),
    ],
)
def test_a_damaged_build_is_not_called_built(wanted: Request, damage: Callable[[Build], None], named: str) -> None:
    """A rerun names the file and the cure, changes nothing, and the cure gives the same build again."""
    made, _ = build_corpus(wanted)
    damage(made)

    with pytest.raises(IntegrityError, match=named) as caught:
        build_corpus(wanted)
    assert f"remove the folder builds/{made.folder.name} and run the build again" in str(caught.value)
    shutil.rmtree(made.folder)
    again, is_new = build_corpus(wanted)

    assert is_new
    assert again.manifest == made.manifest
    assert verify_build(again, deep=True)


def test_a_lost_key_is_never_made_anew(wanted: Request) -> None:
    """Where builds depend on an absent key, the run stops and makes none; with the key back it goes on."""
    own = replace(wanted, key_path=None)
    made, _ = build_corpus(own)
    key = wanted.corpus / "secret" / "record-id.key"
    kept = key.rename(wanted.corpus.parent / "backup.key")

    for command in (build_corpus, plan_corpus):
        with pytest.raises(IntegrityError, match="restore it from a backup"):
            command(own)
    absent = not key.exists()
    kept.rename(key)
    again, is_new = build_corpus(own)

    assert absent
    assert not is_new
    assert again.manifest == made.manifest


def test_a_rerun_of_an_older_build_leaves_current_alone(wanted: Request, tmp_path: Path, scheduler: str) -> None:
    """Readers keep the newest build; the older one becomes current only where CURRENT names no committed build."""
    older, _ = build_corpus(wanted)
    newer = build([write_rows(tmp_path / "new.csv", some_rows(5))], wanted.corpus, scheduler)

    build_corpus(wanted)
    current = [open_build(wanted.corpus).folder]
    make_current(wanted.corpus, OLD_ID)
    build_corpus(wanted)
    current.append(open_build(wanted.corpus).folder)

    assert current == [newer.folder.resolve(), older.folder.resolve()]


def test_the_notice_says_which_build_is_current(wanted: Request, tmp_path: Path, scheduler: str) -> None:
    """Whoever reruns an older build learns that readers take another."""
    from sharding.cli import _already_built

    older, _ = build_corpus(wanted)
    said = [_already_built(wanted.corpus, older.folder.name)]
    newer = build([write_rows(tmp_path / "new.csv", some_rows(5))], wanted.corpus, scheduler)
    said.append(_already_built(wanted.corpus, older.folder.name))

    assert "it is current" in said[0]
    assert f"{newer.folder.name} stays current" in said[1]


def test_note_text_of_stopped_builds_is_removed(wanted: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """A build that ends clears what stopped ones left and says so; one that is at work keeps its files."""
    idle, busy = (scratch_of(wanted.corpus, build_id) for build_id in (OLD_ID, "b-00000000000000bb"))
    for scratch in (idle, busy):
        make_folder(scratch)
        scratch.spill(0).write_bytes(b"text")
    orphan = wanted.corpus / "scratch" / "b-00000000000000cc.lock"
    orphan.write_bytes(b"")

    with locked(busy.folder):
        build_corpus(wanted)
        left = sorted(path.name for path in (wanted.corpus / "scratch").iterdir())

    assert left == [busy.folder.name, f"{busy.folder.name}.lock"]
    assert busy.spill(0).read_bytes() == b"text"
    assert "removed what 1 stopped builds" in capsys.readouterr().err


def test_scratch_files_that_stay_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A scratch folder that cannot be removed is named; a link is never followed and emptied."""
    scratch = scratch_of(tmp_path, OLD_ID)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"x")
    scratch.folder.parent.mkdir()
    scratch.folder.symlink_to(elsewhere)

    clear(scratch)

    assert f"scratch/{OLD_ID}: could not be removed" in capsys.readouterr().err
    assert (elsewhere / "kept").exists()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EACCES, UsageError),
        (errno.EROFS, UsageError),
        (errno.ENOTDIR, UsageError),
        (errno.ENOSPC, TemporaryError),
        (errno.EDQUOT, TemporaryError),
    ],
)
def test_a_closed_place_is_a_mistake_and_a_full_disk_passes(code: int, kind: type[PipelineError]) -> None:
    """Exit code 2 where another run would fail as well, 75 where it need not."""
    error = wrapped_write(Path("corpus") / "scratch", OSError(code, "x"))

    assert type(error) is kind
    assert os.strerror(code) in str(error)


@pytest.mark.parametrize("place", ["file/corpus", "dangling", "blocked"])
@pytest.mark.parametrize("own_key", [True, False])
def test_a_corpus_that_cannot_be_made_is_a_usage_error(wanted: Request, place: str, own_key: bool) -> None:
    """A place below a file, a link to nowhere, a file where a folder must be: one line, code 2, with or without key."""
    base = wanted.corpus.parent
    (base / "file").write_bytes(b"")
    (base / "dangling").symlink_to(base / "nowhere")
    for name in ("scratch", "secret"):
        (base / "blocked").mkdir(exist_ok=True)
        (base / "blocked" / name).write_bytes(b"")
    elsewhere = replace(wanted, corpus=base / place, key_path=None if own_key else wanted.key_path)

    with pytest.raises(UsageError) as caught:
        build_corpus(elsewhere)

    assert len(str(caught.value).splitlines()) == 1


def test_a_key_below_a_file_is_a_usage_error(tmp_path: Path) -> None:
    """The key's folder cannot be made: code 2."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(UsageError, match=r"record-id\.key"):
        make_key(tmp_path / "file" / "secret" / "record-id.key")


def test_a_corpus_below_its_inputs_is_refused(wanted: Request) -> None:
    """Neither build nor plan begins, and nothing is made there."""
    inputs = wanted.corpus.parent
    below = replace(wanted, inputs=[str(inputs)], corpus=inputs / "new")

    for command in (build_corpus, plan_corpus):
        with pytest.raises(UsageError, match="--out"):
            command(below)

    assert not below.corpus.exists()


def test_hidden_inputs_are_said(wanted: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """The number of hidden files and folders stands in the notice."""
    folder = wanted.corpus.parent / "inputs"
    (folder / "_old").mkdir(parents=True)
    write_rows(folder / "in.csv", some_rows(3))
    write_rows(folder / ".in.csv", some_rows(4))
    write_rows(folder / "_old" / "in.csv", some_rows(5))

    made, _ = build_corpus(replace(wanted, inputs=[str(folder)]))

    assert made.manifest.ledger.num_read == 3
    assert "2 files or folders whose names begin with . or _ are left out" in capsys.readouterr().err


@pytest.mark.parametrize("command", [build_corpus, plan_corpus])
def test_another_key_than_that_of_the_builds_is_refused(wanted: Request, command: Callable[[Request], object]) -> None:
    """One digit changed, in the corpus' own key or in one from elsewhere: nothing is built or planned."""
    own = replace(wanted, key_path=None)
    made, _ = build_corpus(own)
    key = wanted.corpus / "secret" / "record-id.key"
    right = key.read_text()
    other = ("1" if right[0] == "0" else "0") + right[1:]
    before = sorted(wanted.corpus.rglob("*"))

    key.write_text(other)
    with pytest.raises(IntegrityError, match=r"restore secret/record-id\.key") as caught:
        command(own)
    key.write_text(right)
    with pytest.raises(IntegrityError, match="name a new corpus"):
        command(wanted)

    assert sorted(wanted.corpus.rglob("*")) == before
    assert not any(part.strip() in str(caught.value) for part in (right, other))
    assert build_corpus(own) == (made, False)


@pytest.mark.parametrize("own_key", [True, False])
def test_what_a_build_makes_is_closed_to_others(wanted: Request, own_key: bool) -> None:
    """Under an open umask too, a new corpus, its builds, scratch and secret are the owner's alone."""
    corpus = wanted.corpus.parent / "new"
    before = os.umask(0o022)
    try:
        fresh = replace(wanted, corpus=corpus, key_path=None if own_key else wanted.key_path)
        plan_corpus(fresh)
        modes = {path.name: path.stat().st_mode & 0o777 for path in [corpus / "scratch", *corpus.glob("scratch/*")]}
        made, _ = build_corpus(fresh)
    finally:
        os.umask(before)

    left = [corpus, corpus / "builds", made.folder, *([corpus / "secret"] if own_key else [])]
    assert set(modes.values()) == {0o700}
    assert {path.stat().st_mode & 0o777 for path in left} == {0o700}


def test_a_corpus_that_is_there_keeps_its_permissions(wanted: Request) -> None:
    """Whoever made the corpus folder has decided who may enter it; the build in it is closed all the same."""
    wanted.corpus.chmod(0o750)

    made, _ = build_corpus(wanted)

    assert wanted.corpus.stat().st_mode & 0o777 == 0o750
    assert made.folder.stat().st_mode & 0o777 == 0o700
