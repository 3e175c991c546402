"""Files are found by name, glob and folder, and whatever is left out is counted or refused."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas.errors import UsageError
from sharding.inputs import check_apart, find_files
from tests.builds import some_rows, write_rows

NOBODY = 65534


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def _names(*inputs: object) -> list[str]:
    return [file.path.name for file in find_files([str(item) for item in inputs], "auto").files]


def test_files_globs_and_folders_are_found_once(tmp_path: Path) -> None:
    """A file that several names find is read once; other files in folders are counted, hidden ones too."""
    _touch(tmp_path, "a.csv", "deep/b.jsonl", "deep/c.txt", "_SUCCESS", ".hidden.csv")

    found = find_files([str(tmp_path), str(tmp_path / "*.csv"), str(tmp_path / "a.csv")], "auto")

    assert [file.path.name for file in found.files] == ["a.csv", "b.jsonl"]
    assert (found.num_unknown, found.num_hidden) == (1, 2)


def test_hidden_folders_are_left_out_and_counted(tmp_path: Path) -> None:
    """A file below a hidden folder is hidden however it is called; the root's own name does not matter."""
    root = tmp_path / "_data"
    _touch(root, "a.csv", ".git/b.csv", "_old/deep/c.csv", "sub/_d.csv")

    found = find_files([str(root)], "auto")

    assert [file.path.name for file in found.files] == ["a.csv"]
    assert found.num_hidden == 3


def test_what_is_named_is_read_although_it_is_hidden(tmp_path: Path) -> None:
    """An explicit name or a glob that matches reads a hidden file, which then does not count as left out."""
    _touch(tmp_path, "a.csv", "_b.csv", ".c.csv")

    found = find_files([str(tmp_path), str(tmp_path / "_*.csv"), str(tmp_path / ".c.csv")], "auto")

    assert sorted(file.path.name for file in found.files) == [".c.csv", "_b.csv", "a.csv"]
    assert found.num_hidden == 0


def test_linked_folders_are_walked_once(tmp_path: Path) -> None:
    """A link to a folder is followed; one that leads back ends, and no file is read twice."""
    _touch(tmp_path, "in/a.csv", "elsewhere/b.csv")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "back").symlink_to(tmp_path / "in")

    assert _names(tmp_path / "in") == ["a.csv", "b.csv"]


def test_folders_that_a_glob_matches_are_walked(tmp_path: Path) -> None:
    """A folder of part files that is itself called ``day.csv`` gives its files."""
    _touch(tmp_path, "one.csv", "day.csv/part-0.csv", "day.csv/_SUCCESS")

    assert _names(tmp_path / "*.csv") == ["part-0.csv", "one.csv"]


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    """A dangling link that looks like an input is named, in a folder, by a glob and by its name."""
    _touch(tmp_path, "a.csv")
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere.csv")

    for name in (tmp_path, tmp_path / "*.csv", tmp_path / "gone.csv"):
        with pytest.raises(UsageError, match=r"gone\.csv: no file"):
            _names(name)


@contextmanager
def _open_to_all() -> Iterator[Path]:
    """A folder that an ordinary user can reach, unlike those of a test run by root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _ordinary_user() -> Iterator[None]:
    """Root may read everything, so for a moment we are somebody else."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("pattern", ["", "**/*.csv", "*/*.csv"])
def test_an_unreadable_folder_is_refused(pattern: str) -> None:
    """What cannot be looked into is an error line, for folders and for globs that would pass over it."""
    with _open_to_all() as folder:
        _touch(folder, "a/a.csv", "closed/b.csv")
        (folder / "closed").chmod(0)

        with _ordinary_user(), pytest.raises(UsageError, match="closed: Permission denied"):
            find_files([str(folder / pattern)], "auto")
        (folder / "closed").chmod(0o700)


@pytest.mark.parametrize("working_folder", ["plain", "with[brackets]", "a*b"])
def test_relative_names_become_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, working_folder: str
) -> None:
    """A worker with another working folder finds the same file; globs and folders too, wherever we stand."""
    folder = tmp_path / working_folder
    folder.mkdir()
    write_rows(folder / "in.csv", some_rows(1))
    monkeypatch.chdir(folder)

    found = [find_files([name], "auto").files[0].path for name in ("in.csv", "*.csv", "**/*.csv", ".")]

    assert found == [folder / "in.csv"] * 4


@pytest.mark.parametrize(("name", "corpus"), [("d", "d/corpus"), ("d", "d"), ("*", "d/x"), ("d/**/*.csv", "d/corpus")])
def test_a_corpus_among_the_inputs_is_refused(tmp_path: Path, name: str, corpus: str) -> None:
    """A corpus below an input folder would be read by the next build; so would inputs that lie in it."""
    _touch(tmp_path, "d/a.csv", "d/corpus/scratch.csv")

    with pytest.raises(UsageError, match="--out"):
        check_apart(find_files([str(tmp_path / name)], "auto"), tmp_path / corpus)


def test_a_corpus_beside_the_inputs_is_fine(tmp_path: Path) -> None:
    """Neither a file beside the corpus nor a folder whose name begins alike is in its way."""
    _touch(tmp_path, "d/a.csv", "b.csv")

    found = find_files([str(tmp_path / "d"), str(tmp_path / "b.csv")], "auto")

    check_apart(found, tmp_path / "d-corpus")
    check_apart(found, tmp_path / "corpus")
