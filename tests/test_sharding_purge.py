"""Builds that readers no longer take can be removed; no reader ever meets half of one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from schemas.errors import IntegrityError, TemporaryError, UsageError
from schemas.folders import open_build
from schemas.verification import verify_build
from sharding.build import build_corpus
from sharding.cli import cli
from sharding.lock import locked
from sharding.purge import builds_beyond, builds_named, purge
from tests.builds import build, request, some_rows, write_rows
from tests.commands import run_command


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> tuple[Path, list[str]]:
    """A corpus of four builds, the last of them current, and their ids in the order of their commits."""
    folder = tmp_path_factory.mktemp("purge")
    source = write_rows(folder / "in.csv", some_rows(12))
    builds = [build([source], folder / "corpus", scheduler, seed=seed) for seed in range(4)]
    for second, item in enumerate(builds):
        os.utime(item.folder / "COMMITTED", (1_000 + second, 1_000 + second))
    return folder / "corpus", [item.manifest.build_id for item in builds]


@pytest.fixture
def corpus(made: tuple[Path, list[str]], tmp_path: Path) -> tuple[Path, list[str]]:
    """A copy to remove builds from."""
    shutil.copytree(made[0], tmp_path / "corpus")
    return tmp_path / "corpus", made[1]


def _there(corpus: Path) -> set[str]:
    return {path.name for path in (corpus / "builds").iterdir()}


@pytest.mark.parametrize("num_kept", [1, 2, 3, 4, 9])
def test_the_newest_are_kept(corpus: tuple[Path, list[str]], num_kept: int) -> None:
    """The order is that of the commits, and what stays is whole."""
    folder, ids = corpus

    removed = [item.build_id for item in purge(folder, builds_beyond(folder, num_kept), dry_run=False)]

    assert set(removed) == set(ids[: max(0, 4 - num_kept)])
    assert _there(folder) == set(ids) - set(removed)
    assert verify_build(open_build(folder), deep=True)


def test_the_current_build_is_kept_however_old(corpus: tuple[Path, list[str]]) -> None:
    """It counts as one of those that are kept."""
    folder, ids = corpus
    (folder / "CURRENT").write_text(f"{ids[0]}\n")

    purge(folder, builds_beyond(folder, 2), dry_run=False)

    assert _there(folder) == {ids[0], ids[3]}
    assert open_build(folder).manifest.build_id == ids[0]


def test_what_is_said_to_be_freed_was_there(corpus: tuple[Path, list[str]]) -> None:
    """A dry run says the same and removes nothing."""
    folder, ids = corpus
    sizes = {
        name: sum(path.stat().st_size for path in (folder / "builds" / name).rglob("*") if path.is_file())
        for name in ids[:2]
    }

    planned = purge(folder, builds_named(folder, ids[:2]), dry_run=True)
    before = _there(folder)
    removed = purge(folder, builds_named(folder, ids[:2]), dry_run=False)

    assert {item.build_id: item.num_bytes for item in removed} == sizes
    assert planned == removed
    assert before == set(ids)
    assert _there(folder) == set(ids[2:])
    assert not (folder / "scratch").exists()


def test_the_current_build_is_never_removed(corpus: tuple[Path, list[str]]) -> None:
    """Named beside another, neither is removed."""
    folder, ids = corpus

    with pytest.raises(UsageError, match=f"{ids[3]}: is the current build"):
        builds_named(folder, [ids[0], ids[3]])
    with pytest.raises(UsageError, match=f"{ids[3]}: is the current build"):
        purge(folder, [ids[0], ids[3]], dry_run=False)

    assert _there(folder) == set(ids)


@pytest.mark.parametrize("damage", ["empty", "cut", "unknown", "folder", "link", "uncommitted"])
def test_nothing_is_removed_while_the_current_build_is_unknown(corpus: tuple[Path, list[str]], damage: str) -> None:
    """A CURRENT that is damaged or cannot be read may name any build, so all of them stay."""
    folder, ids = corpus
    current = folder / "CURRENT"
    if damage == "uncommitted":
        (folder / "builds" / ids[3] / "COMMITTED").unlink()
    elif damage in ("folder", "link"):
        current.unlink()
        current.mkdir() if damage == "folder" else current.symlink_to("gone")
    else:
        current.write_text({"empty": "", "cut": ids[3][:9], "unknown": "b-0000000000000000\n"}[damage])

    with pytest.raises(IntegrityError, match="CURRENT"):
        builds_beyond(folder, 1)
    with pytest.raises(IntegrityError, match="CURRENT"):
        builds_named(folder, [ids[0]])
    with pytest.raises(IntegrityError, match="CURRENT"):
        purge(folder, [ids[0]], dry_run=False)

    assert _there(folder) == set(ids)


def test_without_a_current_build_any_may_be_removed(corpus: tuple[Path, list[str]]) -> None:
    """An absent CURRENT names none."""
    folder, ids = corpus
    (folder / "CURRENT").unlink()

    purge(folder, builds_named(folder, [ids[3]]), dry_run=False)

    assert _there(folder) == set(ids[:3])


@pytest.mark.parametrize("name", ["b-0000000000000000", "..", "CURRENT", "", "../scratch", "b-*"])
def test_an_unknown_build_is_a_usage_error(corpus: tuple[Path, list[str]], name: str) -> None:
    """Whatever is no build of this corpus is not touched."""
    folder, ids = corpus

    with pytest.raises(UsageError, match="no build"):
        builds_named(folder, [ids[0], name])


def test_a_folder_without_builds_is_a_usage_error(tmp_path: Path) -> None:
    """The message says what to name."""
    with pytest.raises(UsageError, match="no corpus"):
        builds_beyond(tmp_path, 1)


def test_a_link_among_the_builds_is_none(corpus: tuple[Path, list[str]], tmp_path: Path) -> None:
    """What a link leads to is somebody else's."""
    folder, _ = corpus
    (tmp_path / "elsewhere").mkdir()
    (folder / "builds" / "b-0000000000000001").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError, match="no build"):
        builds_named(folder, ["b-0000000000000001"])
    purge(folder, builds_beyond(folder, 1), dry_run=False)

    assert (tmp_path / "elsewhere").is_dir()


def test_a_build_that_is_being_written_is_refused(corpus: tuple[Path, list[str]]) -> None:
    """Exit code 75, and the others that were named stay too."""
    folder, ids = corpus

    with locked(folder / "scratch" / ids[1]), pytest.raises(TemporaryError, match=f"{ids[1]}: is being written"):
        purge(folder, ids[:3], dry_run=False)

    assert _there(folder) == set(ids)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_refusal_that_cannot_be_looked_at_is_one_line(corpus: tuple[Path, list[str]], dry_run: bool) -> None:
    """Whatever hinders it, the error is the project's, and names the refusal."""
    folder, ids = corpus
    (folder / "refused").symlink_to("refused")  # a link to itself leads nowhere, for any user

    with pytest.raises(UsageError, match=f"refused/{ids[0]}.json: cannot be written"):
        purge(folder, [ids[0]], dry_run=dry_run)

    assert _there(folder) == set(ids)


def test_a_file_that_goes_while_a_build_is_measured_takes_no_room(
    corpus: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that comes too late removes what it has begun, at any moment."""
    folder, ids = corpus
    (measured,) = purge(folder, [ids[0]], dry_run=True)
    listed = os.listdir

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda path: [*listed(path), ".writing-1-00000000"])
        (purged,) = purge(folder, [ids[0]], dry_run=False)

    assert purged == measured
    assert _there(folder) == set(ids[1:])


def test_a_build_that_goes_while_builds_are_counted_is_none(
    corpus: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another purge is at work; its build is neither kept nor removed."""
    folder, ids = corpus
    is_dir = Path.is_dir

    def seen(path: Path) -> bool:
        found = is_dir(path)
        if path.name == ids[1]:
            shutil.rmtree(path)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", seen)
        beyond = builds_beyond(folder, 2)

    assert beyond == [ids[0]]


def test_a_purge_that_is_stopped_leaves_no_half_build(
    corpus: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first file is gone, nobody can open the rest as a build; purging again removes it."""
    folder, ids = corpus

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            purge(folder, [ids[0]], dry_run=False)
    with pytest.raises(IntegrityError, match="COMMITTED"):
        open_build(folder / "builds" / ids[0])
    purge(folder, builds_named(folder, [ids[0]]), dry_run=False)

    assert _there(folder) == set(ids[1:])


def test_unfinished_work_goes_with_its_build(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted build is removed by its id with its scratch files, and is not counted among those to keep."""
    source = write_rows(tmp_path / "in.csv", some_rows(12))
    first = build([source], tmp_path / "corpus", scheduler).manifest.build_id
    with monkeypatch.context() as patch:
        patch.setattr("sharding.build.commit_build", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            build_corpus(request([source], tmp_path / "corpus", scheduler, seed=1))
    (unfinished,) = _there(tmp_path / "corpus") - {first}

    beyond = builds_beyond(tmp_path / "corpus", 1)
    purge(tmp_path / "corpus", builds_named(tmp_path / "corpus", [unfinished]), dry_run=False)

    assert beyond == []
    assert _there(tmp_path / "corpus") == {first}
    assert not (tmp_path / "corpus" / "scratch").exists()


def test_a_purged_build_can_be_made_again(tmp_path: Path, scheduler: str) -> None:
    """The same inputs and settings give the same build under the same id."""
    source = write_rows(tmp_path / "in.csv", some_rows(12))
    first = build([source], tmp_path / "corpus", scheduler).manifest
    build([source], tmp_path / "corpus", scheduler, seed=1)

    purge(tmp_path / "corpus", builds_beyond(tmp_path / "corpus", 1), dry_run=False)
    again = build([source], tmp_path / "corpus", scheduler).manifest

    assert again == first


def test_the_command_says_what_was_freed(corpus: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """One line a build and the sum, or one JSON object."""
    folder, ids = corpus

    said = run_command(cli, ["purge", folder, ids[0]], capsys)
    parsed = json.loads(run_command(cli, ["purge", folder, "--keep", "1", "--dry-run", "--json"], capsys).out)

    assert said.code == 0
    assert said.out.splitlines()[0].startswith(f"{ids[0]}  removed, ")
    assert said.out.splitlines()[1].startswith("1 builds removed, ")
    assert parsed["status"] == "would_purge"
    assert {entry["build_id"] for entry in parsed["builds"]} == set(ids[1:3])
    assert _there(folder) == set(ids[1:])


@pytest.mark.parametrize("more", [[], ["b-0000000000000000", "--keep", "1"], ["--keep", "0"]])
def test_ids_or_a_number_must_be_given(
    corpus: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """Neither, both, or to keep none at all: exit code 2."""
    folder, ids = corpus

    done = run_command(cli, ["purge", folder, *more], capsys)

    assert done.code == 2
    assert _there(folder) == set(ids)
